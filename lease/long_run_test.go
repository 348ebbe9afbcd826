package lease

import (
	"testing"
	"time"
)

// x/time/rate's TestLongRunningQPS asks the same: 99.9 % of what the limit gives. Missing is what
// stands in the bucket between two calls, and once, at the start, the refill of up to a Target
// while the bucket counted what was spent as held. So the time is long enough for a Target's refill
// to be a thousandth.
func TestLongRunAdmitsWhatTheLimitGives(t *testing.T) {
	for _, l := range []Limit{
		PerSecond(10), PerSecond(30).WithBurst(100), PerSecond(100).WithBurst(5),
		PerSecond(100).WithBurst(50),
		PerSecond(100), PerSecond(100).WithBurst(1000), PerSecond(1000).WithBurst(100), PerSecond(1000),
	} {
		for _, load := range []float64{1, 1.2, 2, 5} {
			span := time.Minute
			if load < 2 || l.Tokens < 100 {
				span = 5 * time.Minute
			}
			// given one process that asks at an even pace, as often as the limit allows or more
			// often
			d := newDriver(t, l)
			h := d.client(Policy{}, l, steady(load*l.Rate()))
			// when it has gone on for a while
			d.run(span)
			// then it was admitted 99.9 % of the burst and the rate, or of what it asked for
			asked := float64(h.admitted + h.denied + h.waiting)
			want := 0.999 * min(asked, float64(l.Capacity())+span.Seconds()*l.Rate())
			if float64(h.admitted) < want {
				t.Errorf("%v, %v times the rate: %d admitted, want %.1f", l, load, h.admitted, want)
			}
			if n := h.callsIn(30 * time.Second); float64(n) > 2*30/h.config.Target.Seconds() {
				t.Errorf("%v, %v times the rate: %d calls in 30 s, Target is %v", l, load, n, h.config.Target)
			}
		}
	}
}
