package rival

import (
	"fmt"
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

// store is the global state of one key. Settlements are made when the next request for the key
// comes, in order of time and then of processes: nobody could see them earlier.
type store struct {
	debt debt
	all  ordered[settlement] // of those who had something to send: the last two periods', and the due
	made int                 // how many of them were made
}

// settlement is one moment at which a process sends what it has admitted.
type settlement struct {
	at   int64
	p    int
	from *view
	left debt // the bucket's afterwards, once it was made
}

func (s settlement) after(o settlement) bool { return s.at > o.at || s.at == o.at && s.p > o.p }

// view is what a process keeps of one key.
type view struct {
	debt    debt
	settled int64 // the last settlement that debt knows of, or when the process first saw the key
	pending int64 // tokens to send
	known   bool
}

func newSettleAfterwards(f Fleet, argument string, _ clock) (Algorithm, error) {
	rates, err := ratesOf(f.Limits)
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
		rates:  rates,
		period: period.Microseconds(),
		first:  f.Processes,
		stores: make([]store, f.Keys),
		views:  pairs[view]{},
	}, nil
}

func (s *settleAfterwards) Decide(now int64, p, key int, n int64) bool {
	s.now = now
	for len(s.since) <= p {
		s.since = append(s.since, -1)
	}
	if s.since[p] < 0 {
		s.since[p] = now
	}
	k, v, last := &s.stores[key], s.views.of(p, key), s.last(p, now)
	k.settle(s.rates, now, s.period)
	if !v.known {
		*v = view{known: true, settled: now}
	}
	if last > v.settled {
		v.debt, v.settled = k.asOf(settlement{at: last, p: p}), last
	}
	v.debt.settle(s.rates, now)
	if !v.debt.hasRoom(s.rates, n) {
		return false
	}
	v.debt.take(s.rates, n)
	if v.pending == 0 {
		k.all.insert(settlement{at: last + s.period, p: p, from: v}, settlement.after)
	}
	v.pending += n
	return true
}

// settle makes the settlements that are due by now, and forgets those that no process can ask for.
func (k *store) settle(rates []rate, now, period int64) {
	for ; k.made < k.all.len() && k.all.at(k.made).at <= now; k.made++ {
		due := k.all.at(k.made)
		k.debt.settle(rates, due.at)
		k.debt.take(rates, due.from.pending)
		due.from.pending = 0
		due.left = k.debt
	}
	for k.made > 1 && k.all.at(1).at <= now-period {
		k.all.drop()
		k.made--
	}
}

// asOf is what the bucket was at a settlement of the last period: full before the first of all.
func (k *store) asOf(s settlement) debt {
	for i := k.made - 1; i >= 0; i-- {
		if past := k.all.at(i); !past.after(s) {
			return past.left
		}
	}
	return debt{}
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
		if since >= 0 {
			n += (s.last(p, s.now) - s.last(p, since)) / s.period
		}
	}
	return n
}
