package rival

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// model is the definition of a token bucket, in fractions.
type model struct {
	limits []lease.Limit
	levels []*big.Rat
	at     int64
}

func newModel(limits []lease.Limit) *model {
	m := &model{limits: limits}
	for _, l := range limits {
		m.levels = append(m.levels, big.NewRat(l.Capacity(), 1))
	}
	return m
}

func (m *model) take(now, n int64) bool {
	m.refill(now)
	for _, level := range m.levels {
		if level.Cmp(big.NewRat(n, 1)) < 0 {
			return false
		}
	}
	m.spend(n)
	return true
}

func (m *model) refill(now int64) {
	for i, l := range m.limits {
		perMicrosecond := times(big.NewRat(l.Tokens, 1), big.NewRat(1000, int64(l.Per)))
		level := m.levels[i].Add(m.levels[i], times(perMicrosecond, big.NewRat(now-m.at, 1)))
		if full := big.NewRat(l.Capacity(), 1); level.Cmp(full) > 0 {
			level.Set(full)
		}
	}
	m.at = now
}

func (m *model) spend(n int64) {
	for _, level := range m.levels {
		level.Sub(level, big.NewRat(n, 1))
	}
}

func newCentralOf(t testing.TB, limits ...lease.Limit) *Central {
	t.Helper()
	c, err := NewCentral(limits)
	testkit.NoErr(t, err)
	return &c
}

// edgy draws the next request of a bucket so that many decisions hang on the last unit: requests
// for all that there is or one more, at the moment when it is there or a microsecond before.
func edgy(rng *rand.Rand, limits []lease.Limit, m *model) (gap, n int64) {
	l := limits[rng.IntN(len(limits))]
	level, _ := new(big.Float).SetRat(m.levels[0]).Int64()
	n = max(1, []int64{1, level, level + 1, 1 + rng.Int64N(l.Capacity())}[rng.IntN(4)])
	microseconds := float64(n) * float64(l.Per) / 1000 / float64(l.Tokens)
	switch rng.IntN(5) {
	case 0:
		return 0, n
	case 1:
		return anyGap(rng), n
	}
	return int64(math.Min(math.Max(0, math.Round(microseconds)+float64(rng.IntN(3)-1)), 1<<50)), n
}

func TestCentralAgreesWithTheDefinition(t *testing.T) {
	rng := testkit.Rand(t)
	seen := map[bool]int{}
	for range testkit.PlainOrRace(1500, 300) {
		limits := make([]lease.Limit, 1+rng.IntN(lease.LimitsMax))
		for i := range limits {
			limits[i] = anyLimit(rng)
		}
		definition, bucket := newModel(limits), newCentralOf(t, limits...)
		var now int64
		for range 40 {
			gap, n := edgy(rng, limits, definition)
			now += gap
			want := definition.take(now, n)
			if got := bucket.Take(now, n); got != want {
				t.Fatalf("%v: Take(%d, %d) is %v, by the definition %v", limits, now, n, got, want)
			}
			seen[want]++
		}
	}
	showMuch(t, seen)
}

func TestCentralByHand(t *testing.T) {
	one := newCentralOf(t, tenPerSecond)
	// Several limits go another way, to the same answers where the others have more room.
	several := newCentralOf(t, lease.PerSecond(1000), tenPerSecond, lease.PerMinute(600).WithBurst(6))
	for _, s := range []struct {
		when   string
		now, n int64
		ok     bool
	}{
		{"nothing is asked for", 0, 0, true},
		{"less than nothing is asked for", 0, -1, false},
		{"all at once", 0, 5, true},
		{"nothing is left", 0, 1, false},
		{"when it is due", 100 * ms, 1, true},
		{"the time goes back: nothing flows in", 50 * ms, 1, false},
		{"and when it comes back, nothing flows in twice", 100 * ms, 1, false},
		{"the next is due", 200 * ms, 1, true},
		{"after a rest, the burst", 9000 * ms, 5, true},
		{"at the end of time", math.MaxInt64, 5, true},
		{"before time began", math.MinInt64, 1, false},
	} {
		for _, c := range []*Central{one, several} {
			if ok := c.Take(s.now, s.n); ok != s.ok {
				t.Errorf("%s, %d limits: Take(%d, %d) is %v", s.when, len(c.rates), s.now, s.n, ok)
			}
		}
	}
}

func TestCentralRefusesMisuse(t *testing.T) {
	for _, limits := range [][]lease.Limit{nil, {{Tokens: -1}}} {
		_, err := NewCentral(limits)
		testkit.Check(t, err != nil, "%v is no bucket", limits)
	}
	defer func() {
		if r := recover(); r == nil || fmt.Sprint(r) != "rival: Take on a Central that NewCentral did not make" {
			t.Errorf("the zero Central: %v", r)
		}
	}()
	new(Central).Take(0, 1)
}

// A line before Central serves each request when its turn has come and all limits have room, which a search
// of every microsecond finds.
func TestALineBeforeCentralIsFirstInFirstOut(t *testing.T) {
	rng := testkit.Rand(t)
	const us = time.Microsecond
	kinds := []func(n int64) lease.Limit{
		// A token comes in whole microseconds.
		func(n int64) lease.Limit { return lease.Limit{Tokens: 1, Per: time.Duration(10*n) * us, Burst: n} },
		func(n int64) lease.Limit { return lease.Sliding(n, 50*us) },
		func(n int64) lease.Limit { return lease.Calendar(n, 50*us, 0) },
	}
	seen := map[bool]int{}
	for range 300 {
		// Given a limit of any kind, and a model that is asked again every microsecond,
		limit := kinds[rng.IntN(3)](1 + rng.Int64N(5))
		if limit.Validate() != nil {
			continue
		}
		line, model := newCentralOf(t, limit), newCentralOf(t, limit)
		var served []int64
		for now, last := int64(0), int64(0); now < 1000; now += rng.Int64N(20) {
			within, admitted := rng.Int64N(100), false
			for at := max(now, last); at <= now+within && !admitted; at++ {
				if admitted = model.Take(at, 1); admitted {
					last, served = at, append(served, at)
				}
			}
			// then both admit the same requests, and as many wait.
			got := line.TakeWithin(now, 1, within)
			testkit.Must(t, got == admitted, "%v at %d within %d: %v, want %v", limit, now, within, got, admitted)
			seen[got]++
			waiting := int64(0)
			for _, at := range served {
				if at > now {
					waiting++
				}
			}
			testkit.Must(t, line.Waiting(now) == waiting, "%v at %d: %d wait, want %d", limit, now, line.Waiting(now),
				waiting)
		}
	}
	testkit.Check(t, seen[true] > 1000 && seen[false] > 1000, "%v", seen)
}
