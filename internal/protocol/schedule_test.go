package protocol

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

var (
	flagSeeds  = flag.Int("lease.seeds", 0, "how many random schedules to run; 0: 500, or 5000 in a long run")
	flagFixed  = flag.Bool("lease.fixed", false, "run only schedules that are the same on every run")
	flagFaults = flag.String("lease.faults", "", "faults that every schedule has, such as 'Refund Flush'")
)

// TestRandomSchedules runs fleets over one bucket through everything that a network, a store and
// its operators do to them (see fleet_test.go), and audits every window of every limit after every
// step. Half of the schedules are new. Half are the same on every run, so that a change is judged
// by what the last one passed.
func TestRandomSchedules(t *testing.T) {
	play := func(seed uint64) {
		if err := playSeed(seed, *flagFaults, nil); err != nil {
			var events []string
			_ = playSeed(seed, *flagFaults, func(format string, args ...any) {
				events = append(events, fmt.Sprintf(format, args...))
			})
			t.Fatalf("seed %d: %v\nlast events:\n%s", seed, err, strings.Join(events[max(0, len(events)-60):], "\n"))
		}
	}
	seeds := *flagSeeds
	if seeds == 0 {
		seeds = testkit.ShortOrLong(t, 500, 5000, "schedules") / testkit.PlainOrRace(1, 4)
	}
	if !*flagFixed {
		seeds /= 2
		for seed := range testkit.Seeds(t, seeds) {
			play(seed)
		}
	}
	for seed := range seeds {
		play(uint64(seed) + 1)
	}
}

// playSeed plays one schedule, with the named faults always, and tells what happens.
func playSeed(seed uint64, always string, logf func(string, ...any)) error {
	rnd := rand.New(rand.NewPCG(seed, 0x79757a6869))
	f := newFleet(rnd, randomFaults(rnd).with(always), logf)
	for range 1500 {
		f.step()
		if err := f.check(); err != nil {
			return fmt.Errorf("at %d µs: %w (%v)", f.now-fleetStart, err, f.faults)
		}
	}
	return nil
}

// faults are the faults that a schedule may have. Those after exact change the promise as the comments say.
type faults struct {
	Lossy, Slow, Twice          bool
	Drift                       bool
	Retry, GiveUp, GiveBack     bool
	Refund, PutBack, Debt       bool
	Charge                      bool // exact but for what is owed
	Headroom                    bool
	Draws                       bool // calls that lease nothing, where they can be
	Windows                     bool // some limits are sliding windows or calendars
	GiveUpWaiting               bool // requests that are granted tokens and have gone
	Again                       bool // calls delivered a second time, in order, after T
	Restart, Evict              bool
	Absurd                      bool // a caller claims counters that cannot be
	SetLimits, SetTTL, StepBack bool
	Versions                    bool // some processes have a newer configuration, and fresh ones the old
	Turns                       bool // some have another configuration of the same version
	Flush                       bool // exact where a caller that knew the bucket comes first
	Failover                    bool // exact where the best-informed caller comes first
	BlindFlush, BlindFailover   bool // at most B + E more
	StepForward                 bool // one refill and the present holdings more
	SharedID                    bool // at most one holding more
}

// randomFaults are any of them together: most holes were where two of them met.
func randomFaults(rnd *rand.Rand) (f faults) {
	coin := func() bool { return rnd.IntN(2) == 0 }
	now := func(often int) bool { return rnd.IntN(often) == 0 }
	f = faults{
		Lossy: coin(), Slow: coin(), Twice: coin(), Drift: coin(), Retry: coin(), GiveUp: coin(), GiveBack: coin(),
		Refund: coin(), PutBack: coin(), Debt: now(4), Restart: now(4), Evict: now(3), GiveUpWaiting: coin(),
		Again: now(3), Absurd: now(4), Charge: now(4), Headroom: now(4), Draws: coin(), Windows: coin(),
		SetLimits: now(3), SetTTL: now(3), StepBack: now(4), Versions: now(4), Turns: now(3), Flush: now(4),
		Failover: now(6),
	}
	f.Restart = f.Restart || f.Versions
	switch rnd.IntN(16) { // what is not exact, one at a time, since its size is known
	case 0:
		f.BlindFlush = true
	case 1:
		f.BlindFailover = true
	case 2:
		f.StepForward = true
	case 3:
		f.SharedID = true
	}
	return f
}

// with is f and the named faults.
func (f faults) with(names string) faults {
	for name := range strings.FieldsSeq(names) {
		reflect.ValueOf(&f).Elem().FieldByName(name).SetBool(true)
	}
	return f
}

func (f faults) String() string {
	var on []string
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		if v.Field(i).Bool() {
			on = append(on, v.Type().Field(i).Name)
		}
	}
	return strings.Join(on, " ")
}
