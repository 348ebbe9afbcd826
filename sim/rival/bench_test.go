package rival

import (
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// BenchmarkCentralTake is what every simulated request costs. The load is 1.3 times the limit, so
// that one of four is refused in no regular order.
func BenchmarkCentralTake(b *testing.B) {
	for _, count := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("limits=%d", count), func(b *testing.B) {
			c := newCentralOf(b, busy(count)...)
			var now int64
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				now += gaps[i%len(gaps)]
				c.Take(now, 1)
			}
		})
	}
}

func busy(count int) (limits []lease.Limit) {
	for i := range int64(count) {
		limits = append(limits, lease.Limit{Tokens: 500_003 + i, Per: time.Second, Burst: 50_000})
	}
	return limits
}

// gaps are in the mean 1.5 microseconds.
var gaps = func() (gaps [4096]int64) {
	x := uint32(1)
	for i := range gaps {
		x = x*1664525 + 1013904223
		gaps[i] = int64(x >> 30)
	}
	return gaps
}()
