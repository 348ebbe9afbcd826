package live

import (
	"slices"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/rival"
)

// Central reports how many of the same requests one exact limiter of the same kind would have admitted, asked
// for each request: a token bucket, a log of all admissions, or a counter of the period.
type Central struct {
	Limiter  string  `json:"limiter"`
	Admitted int64   `json:"admitted"`
	Part     float64 `json:"part"` // admitted by the fleet / Admitted
}

// central replays all requests in the order in which they were made. It returns nil without any.
func (o Options) central(admitted, denied []audit.Span, ahead interval) (*Central, error) {
	limiter, err := rival.NewCentral([]lease.Limit{o.limit()})
	if err != nil || len(admitted)+len(denied) == 0 {
		return nil, err
	}
	var asked []int64 // by the server's clock, in microseconds
	for _, s := range slices.Concat(admitted, denied) {
		asked = append(asked, (s.Before+ahead.from)/1000)
	}
	slices.Sort(asked)
	n := int64(0)
	for _, now := range asked {
		if limiter.Take(now, 1) {
			n++
		}
	}
	words := map[lease.Kind]string{
		lease.KindBucket: "token bucket", lease.KindSliding: "sliding log",
		lease.KindCalendar: "counter of the period",
	}
	return &Central{words[o.limit().Kind], n, float64(len(admitted)) / float64(max(n, 1))}, nil
}
