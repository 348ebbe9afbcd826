package audit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkWorst judges the record of 8 processes, one run after the other as the stamp files
// deliver it.
func BenchmarkWorst(b *testing.B) {
	for _, size := range []int{100_000, 5_000_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			spans := make([]Span, 0, size)
			for range 8 {
				for at := int64(0); len(spans)%(size/8) != 0 || at == 0; {
					at += rng.Int64N(20_000)
					spans = append(spans, Span{at, at + rng.Int64N(50_000), 1 + rng.Int64N(3)})
				}
			}
			bound := Bound{Tokens: 1_600_003, Per: time.Second, Burst: 1000}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Worst(spans, bound); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/span")
		})
	}
}

func BenchmarkMeterAdmit(b *testing.B) {
	m := NewMeter(Bound{Tokens: 1_000_003, Per: time.Second, Burst: 1000})
	var at int64
	b.ReportAllocs()
	for b.Loop() {
		at += 1000
		m.Admit(at, 1)
	}
}
