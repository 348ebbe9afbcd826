package lease

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// demand estimates attempts per second, denied ones included. It is the larger of two exponentially
// weighted means: the fast one (half-life Target/2) follows a rise at once, and the slow one
// (4*Target) keeps a pause between two bursts from looking like the end.
type demand struct {
	fast, slow float64 // attempts per second
	seen       int64   // attempts counted so far
	at         clock.Instant
}

// observe takes in the total number of attempts up to now. A sample with no time since the last one
// is merged with the next, because a rate over zero seconds is not a number.
func (d *demand) observe(now clock.Instant, attempts int64, target time.Duration) {
	dt := now.Sub(d.at).Seconds()
	if dt <= 0 {
		return
	}
	rate := float64(max(0, attempts-d.seen)) / dt
	d.fast += float64(weigh(dt, target.Seconds()/2) * (rate - d.fast))
	d.slow += float64(weigh(dt, target.Seconds()*4) * (rate - d.slow))
	d.seen = attempts
	d.at = now
}

// weigh is the weight of a sample over dt seconds: dt/(dt + halfLife/ln 2). For short samples that
// is about 1 - 2^(-dt/halfLife), but it is the same on every machine to the last bit, which the
// simulator needs. For the same reason products are rounded by float64(x*y), here and below: some
// processors would otherwise fuse them with the sum that follows.
func weigh(dt, halfLife float64) float64 {
	return dt / (dt + float64(halfLife*math.Log2E))
}

// rate is d of docs/protocol.md section 8.
func (d *demand) rate() float64 { return max(d.fast, d.slow) }

// expected is a number of attempts within span that a Poisson process of the present rate exceeds
// about once in a thousand times: its mean and three standard deviations.
func (d *demand) expected(span time.Duration) float64 {
	return spread(float64(d.rate() * span.Seconds()))
}

func spread(mean float64) float64 { return mean + float64(3*math.Sqrt(mean)) }
