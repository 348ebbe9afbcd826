package lease

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
	faults := randomFaults(rnd)
	// Of a generator of its own, so that the schedules without windows stay what they were.
	faults.Windows = rand.New(rand.NewPCG(seed, 0x6669)).IntN(2) == 0
	f := newFleet(rnd, faults.with(always), logf)
	for range 1500 {
		f.step()
		if err := f.check(); err != nil {
			return fmt.Errorf("at %d µs: %w (%v)", f.now-fleetStart, err, f.faults)
		}
	}
	return nil
}

// faults are what may happen in one schedule. Those after exact change the promise as the comments
// say.
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

func randomFaults(rnd *rand.Rand) (f faults) {
	coin := func() bool { return rnd.IntN(2) == 0 }
	f = faults{
		Lossy: coin(), Slow: coin(), Twice: coin(), Drift: coin(), Retry: coin(), GiveUp: coin(), GiveBack: coin(),
		Refund: coin(), PutBack: coin(), Debt: rnd.IntN(4) == 0, Restart: rnd.IntN(4) == 0, Evict: rnd.IntN(3) == 0,
		GiveUpWaiting: coin(), Again: rnd.IntN(3) == 0, Absurd: rnd.IntN(4) == 0,
		Charge: rnd.IntN(4) == 0, Headroom: rnd.IntN(4) == 0,
	}
	defer func() { f.Draws = coin() }() // last, so that the other faults of a seed stay what they were
	switch rnd.IntN(13) {
	case 0, 1:
		f.SetLimits, f.SetTTL = coin(), coin()
	case 2:
		f.SetTTL = true
	case 3:
		f.Flush, f.SetLimits, f.SetTTL = true, coin(), coin()
	case 4:
		f.Failover, f.SetTTL = true, coin()
	case 5:
		f.StepBack = true
	case 6:
		f.BlindFlush = true
	case 7:
		f.BlindFailover = true
	case 8:
		f.StepForward = true
	case 9:
		f.SharedID = true
	case 10:
		f.Versions, f.Restart, f.Flush, f.SetTTL = true, true, coin(), coin()
	case 11:
		f.Turns, f.Flush, f.SetTTL = true, rnd.IntN(4) == 0, rnd.IntN(4) == 0
	}
	return f
}

// with is f and the named faults.
func (f faults) with(names string) faults {
	for _, name := range strings.Fields(names) {
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
