package hybrid_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// TestTheLogNamesTheBurstThatALargeFleetWants: where leases cannot last as long as the budget of
// calls wants them, the log says so when that begins, and which burst would do.
func TestTheLogNamesTheBurstThatALargeFleetWants(t *testing.T) {
	const text = "the burst is too small for as few lease calls as CallsPerSecond says"
	policy := denying
	policy.CallsPerSecond = 20
	for name, x := range map[string]struct {
		burst int64
		times int
	}{
		// 40 processes may call every 2 s, in which 2,000 tokens refill: three times as many are wanted.
		"too small": {1000, 1},
		"enough":    {6000, 0},
	} {
		bubbleOf(t, name, func(t *world) {
			// Given forty processes on one key, of which the last one's log is read,
			cfg := by(policy, hybrid.PerSecond(1000).WithBurst(x.burst))
			others := t.fleet(39, cfg)
			out := logTo(&cfg)
			last := t.start(cfg)
			ask := func(d time.Duration, ls ...*hybrid.Limiter) {
				used(d, func() {
					for _, l := range ls {
						l.Allow("k")
					}
				})
			}
			ask(time.Second, others...)
			logs(t, out, 0, text)
			// when it calls again and again, then there is one line, with all that cures it;
			ask(15*time.Second, append(others, last)...)
			logs(t, out, x.times, text, "key=k calls_per_second=20 processes=40 burst=6000")
			// and when the fleet has become small and then large once more, there is another.
			ask(20*time.Second, last)
			logs(t, out, x.times, text)
			ask(5*time.Second, append(others, last)...)
			logs(t, out, 2*x.times, text)
		})
	}
}

// TestALargeFleetCallsAsOftenAsItsBudgetSays: two hundred processes that ask for twice the limit
// make as many calls as Policy.CallsPerSecond says and a fifth more, and ten times as many where it
// does not concern them; and one bucket's tokens are admitted either way.
func TestALargeFleetCallsAsOftenAsItsBudgetSays(t *testing.T) {
	const (
		processes, rate = 200, 1000
		burst           = 4.4 * rate // of what half can be leased for longer than the budget's 2 s
		warmup, run     = 10 * time.Second, 10 * time.Second
	)
	for name, x := range map[string]struct {
		budget      int64
		least, most float64 // calls a second
	}{
		"a budget of 100": {100, 60, 120},
		"the default":     {0, 200, 500},
	} {
		bubbleOf(t, name, func(t *world) {
			policy := denying
			policy.CallsPerSecond = x.budget
			ls := t.fleet(processes, by(policy, hybrid.PerSecond(rate).WithBurst(burst)))
			admitted := func() (n int64) {
				for _, l := range ls {
					n += conserved(t, l).Admitted
				}
				return n
			}
			wait := together(processes, func(i int) {
				r, key := rand.New(rand.NewPCG(18, uint64(i))), ls[i].Key("k")
				for end := time.Now().Add(warmup + run); time.Now().Before(end); {
					time.Sleep(time.Duration(r.ExpFloat64() * processes / (2 * rate) * float64(time.Second)))
					key.Allow()
				}
			})
			time.Sleep(warmup)
			before := admitted()
			check(t, before <= burst+rate*int64(warmup/time.Second), "%d admitted in %v", before, warmup)
			_, calls := t.during(func() { time.Sleep(run) })
			got, perSecond := float64(admitted()-before)/(rate*run.Seconds()), float64(calls)/run.Seconds()
			wait()
			t.Logf("%.0f calls/s, %.3f of one bucket", perSecond, got)
			check(t, perSecond >= x.least && perSecond <= x.most,
				"%.0f calls/s, want %v to %v", perSecond, x.least, x.most)
			check(t, got >= 0.97, "%.3f of one bucket", got)
		})
	}
}
