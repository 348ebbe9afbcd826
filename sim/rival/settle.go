package rival

import (
	"fmt"
	"slices"
	"time"
)

// settleAfterwards has every process admit by its own view of the bucket. Once in a period, each at a moment of its own
// (p*period/N), it sends what it has admitted since and takes the global state. The bucket takes whatever is sent, so its
// level may fall below 0, and then nobody admits until the rate has paid for it. Between two settlements a process sees
// the refill and its own admissions, and nothing of the others': what the bucket holds is admitted up to N times. Where
// R*period comes near Burst, the bucket stands full while its refill is being spent elsewhere, and is charged for it later: less
// than R is admitted in the long run.
//
// A process settles all its keys in one round trip, from its first request on, whether it has something to send or not.
// A key that is new to it looks full until then.
type settleAfterwards struct {
	rates  []rate
	period int64 // microseconds
	first  int   // processes at the start
	stores []store
	views  pairs[view]
	since  []int64 // by process: the time of its first request; -1 for none
	now    int64
}

const (
	defaultPeriod = 100 * time.Millisecond
	maxPeriod     = 24 * time.Hour
)

// store is the global state of one key, with what is needed to settle late and yet in order, which is that of time and then
// of processes: nothing happens at a settlement that anybody could see before the next request for the key.
type store struct {
	debt debt
	due  []settlement  // to come, in order: of those who have something to send
	past fifo[settled] // of the last period and one before, in order: of those who had
}

type settlement struct {
	at int64
	p  int
}

func (s settlement) before(o settlement) bool { return s.at < o.at || s.at == o.at && s.p < o.p }

// settled is what the bucket was after a settlement.
type settled struct {
	settlement
	debt debt
}

// view is what a process keeps of one key.
type view struct {
	debt    debt
	settled int64 // the last settlement that debt knows of, or when the process first saw the key
	pending int64 // tokens to send
	known   bool
}

func newSettleAfterwards(f Fleet, argument string) (Algorithm, error) {
	rates, err := ratesOf(f.Limits)
	if err != nil {
		return nil, err
	}
	period := defaultPeriod
	if argument != "" {
		period, err = time.ParseDuration(argument)
		if err != nil || period < time.Microsecond || period > maxPeriod || period%time.Microsecond != 0 {
			return nil, fmt.Errorf("%w: the period is %q, must be whole microseconds with a unit, from 1us to %v", ErrArgument, argument, maxPeriod)
		}
	}
	return &settleAfterwards{
		rates:  rates,
		period: period.Microseconds(),
		first:  f.Processes,
		stores: make([]store, f.Keys),
		views:  newPairs[view](),
	}, nil
}

func (s *settleAfterwards) Decide(now int64, p, key int, n int64) bool {
	s.now = now
	s.meet(p)
	k := &s.stores[key]
	s.settleDue(k, key)
	v := s.views.of(p, key)
	last := s.last(p, now)
	if !v.known {
		*v = view{known: true, settled: now}
	}
	// What it had to send has been settled above, so this is for a process that had nothing, at its own moment.
	if last > v.settled {
		v.debt, v.settled = k.asOf(settlement{last, p}), last
	}
	v.debt.settle(s.rates, now)
	if !v.debt.hasRoom(s.rates, n) {
		return false
	}
	v.debt.take(s.rates, n)
	if v.pending == 0 {
		k.schedule(settlement{last + s.period, p})
	}
	v.pending += n
	return true
}

// settleDue makes the settlements of one key until now, in order.
func (s *settleAfterwards) settleDue(k *store, key int) {
	made := 0
	for _, due := range k.due {
		if due.at > s.now {
			break
		}
		made++
		v := s.views.of(due.p, key)
		k.debt.settle(s.rates, due.at)
		k.debt.take(s.rates, v.pending)
		v.debt, v.settled, v.pending = k.debt, due.at, 0
		k.past.add(settled{due, k.debt})
	}
	k.due = slices.Delete(k.due, 0, made)
	for k.past.len() > 1 && k.past.at(1).at <= s.now-s.period {
		k.past.drop()
	}
}

// asOf is what the bucket was at a settlement that sent nothing: full before the first that did. It knows a period.
func (k *store) asOf(s settlement) debt {
	for i := k.past.len() - 1; i >= 0; i-- {
		if past := k.past.at(i); past.before(s) {
			return past.debt
		}
	}
	return debt{}
}

func (k *store) schedule(s settlement) {
	i := len(k.due)
	for i > 0 && s.before(k.due[i-1]) {
		i--
	}
	k.due = slices.Insert(k.due, i, s)
}

// last is p's last moment of settling until a time; before its first one, it is a period earlier.
func (s *settleAfterwards) last(p int, at int64) int64 {
	phase := int64(p%s.first) * s.period / int64(s.first)
	if at < phase {
		return phase - s.period
	}
	return at - (at-phase)%s.period
}

// meet notes when a process is first seen.
func (s *settleAfterwards) meet(p int) {
	for len(s.since) <= p {
		s.since = append(s.since, -1)
	}
	if s.since[p] < 0 {
		s.since[p] = s.now
	}
}

// RoundTrips counts every process's settlements since it was first seen.
func (s *settleAfterwards) RoundTrips() (n int64) {
	for p, since := range s.since {
		if since >= 0 {
			n += (s.last(p, s.now) - s.last(p, since)) / s.period
		}
	}
	return n
}
