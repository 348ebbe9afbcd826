package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// demand estimates attempts per second (8.1). The fast mean (half-life Target/2) follows a rise at once, and
// the slow one (4*Target) keeps a pause between two bursts from looking like the end of the load.
type demand struct {
	fast, slow float64 // attempts per second
	seen       int64   // attempts counted so far
	at         clock.Instant
}

// observe adds the total number of attempts up to now. A sample of no time is merged into the next one.
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

// weigh returns the weight of a sample over dt seconds: about 1 - 2^(-dt/halfLife) for a short dt. The
// simulator needs results that are equal to the last bit on every machine, so float64(x*y) rounds each
// product: some processors would fuse a product with the following sum.
func weigh(dt, halfLife float64) float64 {
	return dt / (dt + float64(halfLife*math.Log2E))
}

// rate returns the demand d of docs/protocol.md section 8.1.
func (d *demand) rate() float64 { return max(d.fast, d.slow) }

// expected returns a number of attempts within span that a Poisson process of the present rate exceeds about
// once in a thousand times: the mean plus three standard deviations.
func (d *demand) expected(span time.Duration) float64 {
	return spread(float64(d.rate() * span.Seconds()))
}

func spread(mean float64) float64 { return mean + float64(3*math.Sqrt(mean)) }

const (
	// latencySamples is how many samples are kept; the second largest of them is the 99th percentile. From
	// latencyFew samples on, a single largest sample counts as a stall.
	latencySamples, latencyFew = 128, 16
	// latencySpan is how long a sample counts: older samples say nothing about the present network.
	latencySpan = 3 * time.Second
)

// Latency estimates the 99th percentile of the latest round trips to one node of a store, for Client.Tick and
// Build. The latest latencyFew samples always count, however old. The zero Latency has no samples. Goroutines
// that share a Latency need a lock.
type Latency struct {
	samples [latencySamples]struct {
		took time.Duration
		at   clock.Instant
	}
	n      int
	p99    time.Duration
	looked clock.Instant // when p99 was last computed
}

// Add adds a round trip of length d that ended at now. The caller adds no failed round trips.
func (l *Latency) Add(now clock.Instant, d time.Duration) {
	s := &l.samples[l.n%latencySamples]
	s.took, s.at = d, now
	l.n++
	// Compute p99 at once after a rise, otherwise at every eighth sample or after latencySpan/8.
	if l.n%8 != 1 && d <= l.p99 && now.Sub(l.looked) < latencySpan/8 {
		return
	}
	l.looked = now
	var first, second time.Duration // the two largest samples
	have := 0
	for ; have < min(l.n, latencySamples); have++ {
		s := &l.samples[(l.n-1-have)%latencySamples]
		if have >= latencyFew && now.Sub(s.at) > latencySpan {
			break
		}
		first, second = max(first, s.took), max(second, min(first, s.took))
	}
	// Use the second largest sample, so that one stall changes nothing; use the largest of few samples.
	if l.p99 = first; have >= latencyFew {
		l.p99 = second
	}
}

// Quantile returns the 99th percentile; 0 before the first sample.
func (l *Latency) Quantile() time.Duration { return l.p99 }

// pace is the demand of a key at rest: the two means of type demand, but in requests per second, because a
// lease saves one call per request. A process may have a million keys at rest, so the means are float32.
type pace struct{ fast, slow float32 }

// after returns p advanced by the time since, at whose end 0 or 1 requests came.
func (p pace) after(since time.Duration, requests float64, target time.Duration) pace {
	dt := max(since, 0).Seconds()
	mean := func(old float32, halfLife float64) float32 {
		w := weigh(dt, halfLife)
		return float32(float64((1-w)*float64(old)) + float64((1-w)*requests)/float64(halfLife*math.Log2E))
	}
	return pace{mean(p.fast, target.Seconds()/2), mean(p.slow, target.Seconds()*4)}
}
