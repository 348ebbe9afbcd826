package live

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/rival"
)

// asks has the requests for one key, ordered by process.
type asks struct{ admitted, denied []audit.Span }

// read appends the requests in a process's file to asked, by key, and returns the admitted tokens.
func read(f *stamps.File, o Options, process int, asked []asks) (admitted int64, err error) {
	slot := 0
	one := func(key int, n int64) {
		span, ok := f.At(slot)
		slot++
		span.N = n
		switch a := &asked[key]; {
		case ok && span.Before > 0:
			a.admitted = append(a.admitted, span)
			admitted += n
		case ok: // a denial has a negative start time, see child.ask
			span.Before = -span.Before
			a.denied = append(a.denied, span)
		}
	}
	if o.Scenario.Workload.Kind == sim.Adversary {
		most := o.capacityOfAdversary()
		for range most {
			one(0, 1)
		}
		if n := f.Offered().Load(); n > int64(most) {
			err = fmt.Errorf("no room to record %d of %d requests; the run proves nothing", n-int64(most), n)
		}
		return admitted, err
	}
	requests, err := sim.Requests(o.Scenario, process)
	for q := range requests {
		one(q.Key, q.Cost)
	}
	return admitted, err
}

// worstOf returns the worst window of all keys: the largest excess, or without an excess the most admissions.
func worstOf(bound audit.Bound, asked []asks, ahead interval) (worst audit.Window, err error) {
	for key, a := range asked {
		shifted := make([]audit.Span, len(a.admitted))
		for i, x := range a.admitted {
			shifted[i] = audit.Span{Before: x.Before + ahead.from, After: x.After + ahead.to, N: x.N}
		}
		w, err := audit.Worst(shifted, bound)
		if err != nil {
			return w, fmt.Errorf("leasesim: audit: %w", err)
		}
		if key == 0 || w.ExceededBy > worst.ExceededBy ||
			w.ExceededBy == worst.ExceededBy && w.Admitted > worst.Admitted {
			worst = w
		}
	}
	worst.From, worst.To = worst.From-ahead.from, worst.To-ahead.to
	return worst, nil
}

// Central has the tokens that one exact limiter of the same kind would have admitted for the same requests.
// The limiter is a token bucket, a log of all admissions, or a counter of the period.
type Central struct {
	Limiter  string  `json:"limiter"`
	Admitted int64   `json:"admitted"`
	Part     float64 `json:"part"` // tokens admitted by the fleet, divided by Admitted
}

// central replays the requests for each key in the order of time. admitted is the number of tokens that the
// fleet admitted. central returns nil if there are no requests.
func central(limit lease.Limit, asked []asks, admitted int64, ahead interval) (*Central, error) {
	words := map[lease.Kind]string{
		lease.KindBucket: "token bucket", lease.KindSliding: "sliding log",
		lease.KindCalendar: "counter of the period",
	}
	c, requests := Central{Limiter: words[limit.Kind]}, 0
	for _, a := range asked {
		limiter, err := rival.NewCentral([]lease.Limit{limit})
		if err != nil {
			return nil, err
		}
		all := slices.Concat(a.admitted, a.denied)
		slices.SortFunc(all, func(a, b audit.Span) int { return cmp.Compare(a.Before, b.Before) })
		requests += len(all)
		for _, s := range all { // times by the server's clock, in microseconds
			if limiter.Take((s.Before+ahead.from)/1000, s.N) {
				c.Admitted += s.N
			}
		}
	}
	if requests == 0 {
		return nil, nil
	}
	c.Part = float64(admitted) / float64(max(c.Admitted, 1))
	return &c, nil
}
