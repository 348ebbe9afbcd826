package live

import (
	"slices"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/rival"
)

// Central is what one exact limiter of the same kind, asked for each request, would have admitted
// of the very same requests: a token bucket, a log of all admissions, or a counter of the period.
type Central struct {
	Limiter  string  `json:"limiter"`
	Admitted int64   `json:"admitted"`
	Part     float64 `json:"part"` // what the fleet admitted, of that
}

// central replays all requests, in the order in which they were made. What is done to the fleet's
// limiter is done to it at the same time: it loses what it counted, starts empty, and is given
// other limits, on which what it has admitted counts.
func (o Options) central(admitted, denied []audit.Span, h happened) (*Central, error) {
	at := func(stamp int64) int64 { return (stamp + h.ahead.from) / 1000 }
	var asked []int64
	for _, s := range slices.Concat(admitted, denied) {
		asked = append(asked, at(s.Before))
	}
	slices.Sort(asked)
	if len(asked) == 0 {
		return nil, nil
	}
	c := &replica{limit: o.limit()}
	if err := c.begin(asked[0], o.StartEmpty); err != nil {
		return nil, err
	}
	flush, change := h.flush, h.change
	for _, now := range asked {
		if flush != (interval{}) && now >= at(flush.from) {
			flush = interval{}
			if err := c.begin(now, o.StartEmpty); err != nil {
				return nil, err
			}
		}
		if change != (interval{}) && now >= at(change.from) {
			change = interval{}
			to, _, _ := o.change()
			if err := c.change(now, to); err != nil {
				return nil, err
			}
		}
		c.take(now)
	}
	words := map[lease.Kind]string{
		lease.KindBucket: "token bucket", lease.KindSliding: "sliding log", lease.KindCalendar: "counter of the period",
	}
	return &Central{
		Limiter: words[o.limit().Kind], Admitted: c.admitted, Part: float64(len(admitted)) / float64(max(c.admitted, 1)),
	}, nil
}

// replica is a central limiter that can be changed.
type replica struct {
	rival.Central
	limit    lease.Limit
	log      []use // since it began
	admitted int64
}

// use is tokens that count from a time on.
type use struct{ at, n int64 }

// begin makes it a new one.
func (r *replica) begin(now int64, empty bool) (err error) {
	r.log = nil
	if r.Central, err = rival.NewCentral([]lease.Limit{r.limit}); err == nil && empty {
		r.use(use{now, r.limit.Capacity()})
	}
	return err
}

func (r *replica) take(now int64) {
	if r.Take(now, 1) {
		r.admitted++
		r.log = append(r.log, use{now, 1})
	}
}

func (r *replica) use(u use) {
	r.Settle(u.at, u.n)
	r.log = append(r.log, u)
}

// change gives it other limits. What a bucket has used is used of what comes next; what a window
// has admitted counts when it was.
func (r *replica) change(now int64, to lease.Limit) error {
	var used int64
	if !r.limit.Windowed() {
		for used = r.limit.Capacity(); used > 0 && r.Take(now, 1); used-- {
		}
	}
	from, log := r.limit, r.log
	r.limit = to
	if err := r.begin(now, false); err != nil {
		return err
	}
	if !from.Windowed() {
		log = []use{{now, used}}
	}
	for _, u := range log {
		r.use(u)
	}
	return nil
}
