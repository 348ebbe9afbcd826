package protocol

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// adversary is a fleet that follows the protocol to the letter and spends as unevenly as it may:
// every holder drains its whole holding just before it reports. Random load never does this.
type adversary struct {
	*scene
	holders []*holder
	rnd     *rand.Rand
}

// asksForAll is a call for more than there can be; waiting of it are for requests that wait.
func (a *adversary) asksForAll(h *holder, waiting int64) {
	a.calls(h, ask{Want: 1 << 30, Waiting: waiting})
}

// drainAll has every holder spend all it has, before and after it asks for more.
func (a *adversary) drainAll() {
	for _, h := range a.holders {
		a.spends(h)
		a.asksForAll(h, 0)
		a.spends(h)
	}
}

// tactic is a way in which the adversary times its calls.
type tactic struct {
	name string
	busy bool  // it leaves no time unused, so that all whole tokens of B + R*t must be admitted
	near int64 // tokens that the worst window must have held at least, where B is larger
	run  func(a *adversary, ttl int64)
}

var tactics = []tactic{
	{"drain, report, drain at once", false, 1000, func(a *adversary, ttl int64) {
		a.pause()
		a.drainAll()
	}},
	{"requests that wait take all", true, 1000, func(a *adversary, ttl int64) {
		a.pause()
		for _, h := range a.holders {
			a.asksForAll(h, 1<<30)
		}
	}},
	{"hoard, then all drain together and ask again", false, 1000, func(a *adversary, ttl int64) {
		for _, h := range a.holders {
			a.asksForAll(h, 0)
		}
		a.now += ttl*15/16 - 2
		for _, h := range a.holders {
			a.spends(h)
		}
		a.drainAll()
	}},
	{"renew a full holding for long, then drain", false, 5, func(a *adversary, ttl int64) {
		for range 5 {
			for _, h := range a.holders {
				a.calls(h, ask{Want: a.rnd.Int64N(3)})
			}
			a.now += ttl / 2
		}
		a.drainAll()
	}},
	{"let leases run out around their end", false, 0, func(a *adversary, ttl int64) {
		for i, h := range a.holders {
			a.roundTrip = a.rnd.Int64N(20)
			a.calls(h, ask{Want: a.rnd.Int64N(20), Waiting: int64(i % 2)})
		}
		a.roundTrip = 0
		a.now += ttl + a.rnd.Int64N(ttl/3) - ttl/6
		a.drainAll()
	}},
}

// pause lets some time pass, but not so much that a central bucket would run over.
func (a *adversary) pause() {
	a.now += a.rnd.Int64N(min(exact.Micros(a.config.TTL), exact.Micros(a.config.Limits[0].TimeToFull()))/4) + 1
}

func TestAdversaryNeverExceedsOneCentralBucket(t *testing.T) {
	limits := []lease.Limit{
		lease.PerSecond(1), lease.PerSecond(10).WithBurst(1), lease.PerSecond(1000).WithBurst(10),
		lease.PerSecond(100_000).WithBurst(500),
		{Tokens: 3, Per: time.Second, Burst: 7}, {Tokens: 1, Per: 250 * time.Millisecond, Burst: 40},
	}
	played, long := 0, testkit.Long(t, "an eighth", "all plays")
	for _, tactic := range tactics {
		for _, l := range limits {
			t.Run(fmt.Sprintf("%s/%v", tactic.name, l), func(t *testing.T) {
				ttls := []time.Duration{400 * time.Millisecond, 10 * time.Millisecond, 3 * time.Second}
				for _, ttl := range ttls[:testkit.PlainOrRace(3, 1)] {
					for _, n := range testkit.PlainOrRace([]int{1, 3, 20}, []int{3}) {
						for _, e := range []int64{0, 3} {
							for _, fair := range []bool{false, true} {
								// One of each eight plays, each time the one before, so that every
								// choice meets every other.
								if long || (played+played/8)%8 == 0 {
									plays(t, tactic, l, e, ttl, n, fair)
								}
								played++
							}
						}
					}
				}
			})
		}
	}
}

// plays repeats a tactic with n holders of a bucket that is full, under an overcommit of e. Beside
// the bound it looks at whether what was possible was used: the audit is not of an empty log.
func plays(t *testing.T, tactic tactic, l lease.Limit, e int64, ttl time.Duration, n int, fair bool) {
	a := &adversary{scene: newScene(t, l, ttl), rnd: rand.New(rand.NewPCG(1, 2))}
	a.fair, a.config.Overcommit, a.config.Target = fair, e, ttl/4
	a.meter = newMeter(l, e, a.now)
	for i := range n {
		a.holders = append(a.holders, a.holder(fmt.Sprint("h", i)))
	}
	start := a.now
	a.asksForAll(a.holders[0], 1<<30) // no refill of a full bucket is lost
	for round := 0; round < 2000 && a.meter.admitted < 4000 && a.bucket.Executed() < 3000; round++ {
		tactic.run(a, exact.Micros(ttl))
	}
	a.audits()
	possible := float64(l.Capacity()) + l.Rate()*float64(a.now-start)/1e6
	if l.Capacity() == 1 { // what a pause refills beside a part of a token is lost
		possible *= 0.91
	}
	how := fmt.Sprintf("E = %d, T = %v, %d holders, fair %v", e, ttl, n, fair)
	testkit.Check(t, !tactic.busy || fair || float64(a.meter.admitted) > possible-1,
		"%s: admitted %d of %.2f", how, a.meter.admitted, possible)
	testkit.Check(t, a.meter.peak >= min(l.Capacity()*meterUnit*8/10, tactic.near*meterUnit),
		"%s: the worst window held %d millionths of a token, B + E = %d", how, a.meter.peak/1000, a.meter.capacity)
}
