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

// outcomes has the requests for one key. The Before and After of a request are the times before and after the
// call.
type outcomes struct{ admitted, denied []audit.Span }

// read appends the requests in the file of a process to byKey, by key, and returns the admitted tokens.
func read(f *stamps.File, o Options, process int, byKey []outcomes) (admitted int64, err error) {
	slot := 0
	one := func(key int, n int64) {
		span, ok := f.At(slot)
		slot++
		span.N = n
		switch a := &byKey[key]; {
		case ok && span.Before > 0:
			a.admitted = append(a.admitted, span)
			admitted += n
		case ok: // a denial has a negative start time, see child.makeOne
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

// worstOf returns the window of all keys with the largest excess, or with the most admissions of these.
func worstOf(bound audit.Bound, byKey []outcomes) (worst audit.Window, err error) {
	for key, a := range byKey {
		w, err := audit.Worst(a.admitted, bound)
		if err != nil {
			return w, fmt.Errorf("leasesim: audit: %w", err)
		}
		if key == 0 || w.ExceededBy > worst.ExceededBy ||
			w.ExceededBy == worst.ExceededBy && w.Admitted > worst.Admitted {
			worst = w
		}
	}
	return worst, nil
}

// Central has the decisions of one exact limiter about the requests of a run.
type Central struct {
	Limiter  string  `json:"limiter"` // "token bucket" or "sliding log"
	Admitted int64   `json:"admitted"`
	Part     float64 `json:"part"` // admissions of the fleet, divided by Admitted
}

// central replays the requests for each key in the order of time. The fleet has admitted the given number of
// tokens. central returns nil without requests.
func central(limit lease.Limit, byKey []outcomes, admitted int64) (*Central, error) {
	c, requests := Central{Limiter: "token bucket"}, 0
	if limit.Kind == lease.KindSliding {
		c.Limiter = "sliding log"
	}
	for _, a := range byKey {
		limiter, err := rival.NewCentral([]lease.Limit{limit})
		if err != nil {
			return nil, err
		}
		all := slices.Concat(a.admitted, a.denied)
		slices.SortFunc(all, func(a, b audit.Span) int { return cmp.Compare(a.Before, b.Before) })
		requests += len(all)
		for _, s := range all {
			if limiter.Take(s.Before/1000, s.N) {
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
