package rival

import (
	"fmt"
	"slices"
	"time"
)

// settleAfterwards has every process admit by its own view of the bucket. Once in a period, each at
// a moment of its own (p*period/N), it sends what it has admitted since and takes the global state.
// The bucket takes whatever is sent, so its level may fall below 0, and then nobody admits until
// the rate has paid for it. Between two settlements a process sees the refill and its own
// admissions and nothing of the others': what the bucket holds is admitted up to N times. Where
// R*period comes near Burst, the bucket stands full while its refill is being spent elsewhere, and
// is charged for it later: less than R is admitted in the long run.
//
// A process settles all its keys in one round trip, from its first request on, whether it has
// something to send or not. A key that is new to it looks full until then.
type settleAfterwards struct {
	full   Central
	period int64 // microseconds
	first  int   // processes at the start
	stores []store
	views  pairs[view]
	since  map[int]int64 // the time of each process's first request
	now    int64
}

const (
	defaultPeriod = 100 * time.Millisecond
	maxPeriod     = 24 * time.Hour
)

// store is the global state of one key. Settlements are made when the next request for the key
// comes, in order of time and then of processes: nobody could see them earlier.
type store struct {
	Central
	due  []settlement // of those who have something to send
	past []settlement // of the last two periods
}

// settlement is one moment at which a process sends what it has admitted.
type settlement struct {
	at   int64
	p    int
	from *view
	left Central // the bucket afterwards, once it was made
}

func (s settlement) after(o settlement) bool { return s.at > o.at || s.at == o.at && s.p > o.p }

// view is what a process keeps of one key: the bucket as it sees it.
type view struct {
	Central
	settled int64 // the last settlement that it knows of, or when the process first saw the key
	pending int64 // tokens to send
}

func newSettleAfterwards(f Fleet, argument string) (Algorithm, error) {
	full, err := NewCentral(f.Limits)
	if err != nil {
		return nil, err
	}
	period := defaultPeriod
	if argument != "" {
		period, err = time.ParseDuration(argument)
		if err != nil || period < time.Microsecond || period > maxPeriod || period%time.Microsecond != 0 {
			return nil, fmt.Errorf("%w: the period is %q, must be whole microseconds with a unit, from 1us to %v",
				ErrArgument, argument, maxPeriod)
		}
	}
	return &settleAfterwards{
		full: full, period: period.Microseconds(), first: f.Processes,
		stores: slices.Repeat([]store{{Central: full}}, f.Keys), views: pairs[view]{}, since: map[int]int64{},
	}, nil
}

func (s *settleAfterwards) Decide(now int64, p, key int, n int64) bool {
	s.now = now
	if _, known := s.since[p]; !known {
		s.since[p] = now
	}
	k, last := &s.stores[key], s.last(p, now)
	v := s.views.of(p, key, view{Central: s.full, settled: now})
	k.settle(now, s.period)
	if last > v.settled {
		v.Central, v.settled = s.asOf(k, settlement{at: last, p: p}), last
	}
	if !v.Take(now, n) {
		return false
	}
	if v.pending == 0 {
		k.due = insert(k.due, settlement{at: last + s.period, p: p, from: v}, settlement.after)
	}
	v.pending += n
	return true
}

// settle makes the settlements that are due by now, and forgets those that no process can ask for.
func (k *store) settle(now, period int64) {
	for len(k.due) > 0 && k.due[0].at <= now {
		next := k.due[0]
		k.due = k.due[1:]
		k.refill(next.at)
		k.spend(next.from.pending)
		next.from.pending = 0
		next.left = k.Central
		k.past = append(k.past, next)
	}
	for len(k.past) > 1 && k.past[1].at <= now-period {
		k.past = k.past[1:]
	}
}

// asOf is what the bucket was at a settlement of the last period: full before the first of all.
func (s *settleAfterwards) asOf(k *store, then settlement) Central {
	for i := len(k.past) - 1; i >= 0; i-- {
		if !k.past[i].after(then) {
			return k.past[i].left
		}
	}
	return s.full
}

// last is p's last moment of settling until a time; before its first one, it is a period earlier.
func (s *settleAfterwards) last(p int, at int64) int64 {
	phase := int64(p%s.first) * s.period / int64(s.first)
	if at < phase {
		return phase - s.period
	}
	return at - (at-phase)%s.period
}

// RoundTrips counts every process's settlements since its first request.
func (s *settleAfterwards) RoundTrips() (n int64) {
	for p, since := range s.since {
		n += (s.last(p, s.now) - s.last(p, since)) / s.period
	}
	return n
}
