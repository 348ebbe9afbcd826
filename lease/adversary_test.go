package lease

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// adversary is a fleet that follows the protocol to the letter and spends as unevenly as it may: every holder
// drains its whole holding just before it reports. Random load never does this.
type adversary struct {
	now     int64 // microseconds, of the server and of everybody else
	bucket  Bucket
	unfair  bool // see shareNothing
	holders []*Holding
	config  Config
	meter   *meter
	seq     int64
}

func newAdversary(n int, c Config) *adversary {
	a := &adversary{now: 1_000_000_000, config: c}
	for i := range n {
		h := new(Holding)
		h.init(fmt.Sprint("h", i), 0)
		a.holders = append(a.holders, h)
	}
	a.meter = newMeter(c.Limits[0], c.Overcommit, a.now)
	return a
}

func (a *adversary) instant() clock.Instant { return clock.Instant(a.now * 1000) }

// drain spends everything that h may still spend.
func (a *adversary) drain(h *Holding) {
	h.Expire(a.instant())
	for {
		if !h.Pool.Take().Ok() {
			return
		}
		a.meter.admit(a.now, 1)
	}
}

// report makes one whole round trip that takes rtt, with the bucket halfway.
func (a *adversary) report(t *testing.T, h *Holding, want, waiting int64, rtt time.Duration) {
	a.seq++
	r := h.Open(a.instant(), a.seq, Ask{Config: a.config, Want: want, Waiting: waiting, Weight: 1})
	a.now += micros(rtt) / 2
	if a.unfair {
		shareNothing(&a.bucket)
	}
	var g Grant
	if err := a.bucket.Call(a.now, r, &g); err != nil {
		t.Fatal(err)
	}
	a.meter.admit(a.now, g.Waited)
	a.now += micros(rtt) / 2
	if _, ok := h.Accept(a.instant(), &g, 0); !ok {
		t.Fatal("the reply to the open call was not accepted")
	}
	if !h.Account().Conserved() {
		t.Fatalf("tokens lost or forged: %+v", h.Account())
	}
}

// pause lets some time pass, but not so much that a central bucket would run over.
func (a *adversary) pause(rnd *rand.Rand) {
	a.now += rnd.Int64N(min(micros(a.config.TTL), micros(a.config.Limits[0].TimeToFull()))/4) + 1
}

func (a *adversary) check(t *testing.T) {
	t.Helper()
	if a.meter.excess() > 0 {
		t.Fatalf("at %d µs (1) is broken: %v", a.now, a.meter)
	}
}

// tactics are the ways in which the adversary times its calls.
var tactics = []struct {
	name string
	// busy tactics leave no time unused, so that nearly B + R*t must be admitted.
	busy bool
	// near is how many tokens the worst window must have held at least, where B is larger: the audit is not of an empty log.
	near int64
	run  func(t *testing.T, a *adversary, rnd *rand.Rand)
}{
	{"drain, report, drain at once", false, 1000, func(t *testing.T, a *adversary, rnd *rand.Rand) {
		a.pause(rnd)
		for _, h := range a.holders {
			a.drain(h)
			a.report(t, h, 1<<30, 0, 0)
			a.drain(h)
			a.check(t)
		}
	}},
	{"requests that wait take all", true, 1000, func(t *testing.T, a *adversary, rnd *rand.Rand) {
		a.pause(rnd)
		for _, h := range a.holders {
			a.report(t, h, 1<<30, 1<<30, 0)
			a.check(t)
		}
	}},
	{"hoard, then all drain together and ask again", false, 1000, func(t *testing.T, a *adversary, rnd *rand.Rand) {
		for _, h := range a.holders {
			a.report(t, h, 1<<30, 0, 0)
		}
		a.now += micros(a.config.TTL)*15/16 - 2
		for _, h := range a.holders {
			a.drain(h)
		}
		a.check(t)
		for _, h := range a.holders {
			a.report(t, h, 1<<30, 0, 0)
			a.drain(h)
			a.check(t)
		}
	}},
	{"renew a full holding for long, then drain", false, 5, func(t *testing.T, a *adversary, rnd *rand.Rand) {
		for range 5 {
			for _, h := range a.holders {
				a.report(t, h, rnd.Int64N(3), 0, 0)
			}
			a.now += micros(a.config.TTL) / 2
			a.check(t)
		}
		for _, h := range a.holders {
			a.drain(h)
			a.report(t, h, 1<<30, 0, 0)
			a.drain(h)
			a.check(t)
		}
	}},
	{"let leases run out around their end", false, 0, func(t *testing.T, a *adversary, rnd *rand.Rand) {
		for i, h := range a.holders {
			a.report(t, h, rnd.Int64N(20), int64(i%2), time.Duration(rnd.Int64N(20))*time.Microsecond)
		}
		a.now += micros(a.config.TTL) + rnd.Int64N(micros(a.config.TTL)/3) - micros(a.config.TTL)/6
		for _, h := range a.holders {
			a.drain(h)
			a.report(t, h, 1<<30, 0, 0)
			a.drain(h)
			a.check(t)
		}
	}},
}

func TestAdversaryNeverExceedsOneCentralBucket(t *testing.T) {
	limits := []Limit{
		PerSecond(1), PerSecond(10).WithBurst(1), PerSecond(1000).WithBurst(10), PerSecond(100_000).WithBurst(500),
		{Tokens: 3, Per: time.Second, Burst: 7}, {Tokens: 1, Per: 250 * time.Millisecond, Burst: 40},
	}
	for _, tactic := range tactics {
		for _, l := range limits {
			for _, e := range []int64{0, 3} {
				for _, ttl := range []time.Duration{10 * time.Millisecond, 400 * time.Millisecond, 3 * time.Second} {
					for _, n := range []int{1, 3, 20} {
						c := Config{Limits: []Limit{l}, Overcommit: e, TTL: ttl, Target: ttl / 4}
						name := fmt.Sprintf("%s/%v E=%d T=%v N=%d", tactic.name, l, e, ttl, n)
						playTactic(t, name, n, c, tactic.busy, tactic.near, tactic.run)
					}
				}
			}
		}
	}
}

func playTactic(t *testing.T, name string, n int, c Config, busy bool, near int64, run func(*testing.T, *adversary, *rand.Rand)) {
	t.Run(name, func(t *testing.T) {
		for _, unfair := range []bool{true, false} {
			// given a fleet and a bucket that is full
			a := newAdversary(n, c)
			a.unfair = unfair
			rnd := rand.New(rand.NewPCG(1, 2))
			start := a.now
			// when it plays the tactic again and again
			for round := 0; round < 2000 && a.meter.admitted < 4000 && a.bucket.state.counter < 3000; round++ {
				run(t, a, rnd)
			}
			// then, beside the bound, what was possible was used: the audit is not of an empty log
			l := c.Limits[0]
			possible := float64(l.Capacity()) + l.Rate()*float64(a.now-start)/1e6
			if busy && unfair && float64(a.meter.admitted) < 0.9*possible-2 {
				t.Errorf("admitted %d of %.1f", a.meter.admitted, possible)
			}
			if a.meter.peak < min(l.Capacity()*meterUnit*8/10, near*meterUnit) {
				t.Errorf("the worst window held %d millionths of a token, B + E = %d", a.meter.peak/1000, a.meter.capacity)
			}
		}
	})
}
