package testkit

import (
	"testing"
	"time"
)

// Ratio measures f and reference alternately, and reports the nanoseconds of each and their ratio. Both
// functions run a loop of n direct calls, because a call through a func value would add its own time.
func Ratio(b *testing.B, f, reference func(n int)) {
	b.ReportAllocs()
	const turns = 16
	n := b.N/turns + 1
	var own, other time.Duration
	b.ResetTimer()
	for range turns {
		start := time.Now()
		f(n)
		own += time.Since(start)
		start = time.Now()
		reference(n)
		other += time.Since(start)
	}
	b.StopTimer()
	total := float64(turns * n)
	b.ReportMetric(float64(own)/total, "own-ns/op")
	b.ReportMetric(float64(other)/total, "reference-ns/op")
	b.ReportMetric(float64(own)/float64(other), "ratio")
}
