package hybrid_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Where one key denies most requests of a Join, the key that it shares with another Join loses
// nothing by those: all that its bucket makes is admitted.
func TestWhatAKeyDeniesCostsTheOthersNothing(t *testing.T) {
	const lasts, n = 10 * time.Minute, 500
	fleets := []int{3, 1}
	pauses := []time.Duration{250 * time.Millisecond, 50 * time.Millisecond, 700 * time.Millisecond}
	long := testkit.Long(t, "3 processes and one pause", "1 and 3 processes and three pauses")
	if !long || testkit.RaceEnabled {
		fleets, pauses = fleets[:1], pauses[:1]
	}
	for _, processes := range fleets {
		for _, pause := range pauses {
			bubbleOf(t, fmt.Sprintf("%d, %v", processes, pause), func(t *world) {
				// Given a budget, of which some is kept for the first class,
				shared := hybrid.PerMinute(18_000)
				budgets := t.fleet(processes, hybrid.Config{Limits: limits(shared), Priorities: []float64{0.3}})
				tokens := t.fleet(processes, of(hybrid.PerMinute(12_000)))
				admitted := make([]int, 2*processes)
				ask := func(i int, pause time.Duration, key string, class int) int {
					every := pause * time.Duration(processes)
					return admits(int(lasts/every), every, func() bool {
						l := tokens[i]
						return l.Join(l.Key(key), budgets[i].Key("budget").Class(class)).AllowN(n)
					})
				}
				// when the first class is asked for more than another key of the same request has,
				together(2*processes, func(i int) {
					if i < processes {
						admitted[i] = ask(i, pause, "a", 0)
					} else {
						admitted[i] = ask(i-processes, 50*time.Millisecond, "b", 1)
					}
				})()
				// then the second class has the rest.
				sum := int64(0)
				for _, times := range admitted {
					sum += int64(times) * n
				}
				most := oneBucketHas(shared, lasts) - shared.Capacity()*3/10
				check(t, sum >= most*95/100, "%d admitted of %d", sum, most)
			})
		}
	}
}

// A request that is sure to be denied, or that was denied the last time, draws nothing of the
// other keys.
func TestAJoinThatIsSureToBeDeniedDrawsNothing(t *testing.T) {
	for name, given := range map[string]struct {
		n     int64
		pause time.Duration
		away  bool
	}{
		"above the burst":    {n: 101, pause: 50 * time.Millisecond},
		"the store is away":  {n: 60, pause: 50 * time.Millisecond, away: true},
		"not that many":      {n: 80, pause: 50 * time.Millisecond},
		"at rest in between": {n: 80, pause: 5 * time.Second},
	} {
		bubbleOf(t, name, func(t *world) {
			scarce := t.start(by(denying, hybrid.PerHour(1).WithBurst(100)))
			plenty := t.start(of(hybrid.PerSecond(1000)))
			must(t, scarce.AllowN("scarce", 30) && plenty.Allow("plenty"), "denied")
			if given.away {
				time.Sleep(ttl)
				t.setJudge(func(c *lease.Call) verdict {
					if strings.Contains(c.Key, "scarce") {
						return away
					}
					return verdict{}
				})
			}
			j := plenty.Join(plenty.Key("plenty"), scarce.Key("scarce"))
			for range 3 {
				j.AllowN(given.n)
				time.Sleep(given.pause)
			}
			before := plenty.Stats().Leased
			equal(t, admits(20, given.pause, func() bool { return j.AllowN(given.n) }), 0, "admitted")
			// Less than for one of them, as what was asked for before may have begun a prefetch.
			drawn := plenty.Stats().Leased - before
			check(t, drawn < given.n, "%d drawn", drawn)
		})
	}
}
