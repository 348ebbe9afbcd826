package live

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/rival"
)

// interval encloses a number of nanoseconds. The zero interval encloses nothing.
type interval struct{ from, to int64 }

// compareClocks asks each node for its time, and widens ahead by how much that clock may be ahead of
// stamps.Now. Only a calendar goes by the server's clock.
func (v *server) compareClocks(ctx context.Context, limit lease.Limit, ahead *interval) error {
	if limit.Kind != lease.KindCalendar {
		return nil
	}
	var mu sync.Mutex
	err := v.masters(ctx, func(ctx context.Context, rdb redis.Cmdable) error {
		least, most := int64(math.MinInt64), int64(math.MaxInt64)
		for range 10 {
			before := stamps.Now()
			at, err := rdb.Time(ctx).Result() // in microseconds, rounded down
			if err != nil {
				return err
			}
			least = max(least, at.UnixNano()-stamps.After())
			most = min(most, at.UnixNano()+1000-before)
		}
		mu.Lock()
		defer mu.Unlock()
		if *ahead == (interval{}) {
			*ahead = interval{least, most}
		}
		ahead.from, ahead.to = min(ahead.from, least), max(ahead.to, most)
		return nil
	})
	if err != nil {
		return fmt.Errorf("leasesim: the server's time: %w", err)
	}
	return nil
}

// worstOf finds the window that exceeds the bound of a key most, or comes nearest to it. The keys are 0 to
// keys-1.
func worstOf(bound audit.Bound, keys int, byKey map[int][]audit.Span, ahead interval) (
	worst audit.Window, err error,
) {
	for key := range keys {
		shifted := make([]audit.Span, len(byKey[key]))
		for i, x := range byKey[key] {
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

// Central reports how many of the same requests one exact limiter of the same kind would have admitted, asked
// for each request: a token bucket, a log of all admissions, or a counter of the period.
type Central struct {
	Limiter  string  `json:"limiter"`
	Admitted int64   `json:"admitted"`
	Part     float64 `json:"part"` // admitted by the fleet / Admitted
}

// central replays all requests in the order in which they were made. It returns nil without any.
func central(limit lease.Limit, admitted, denied []audit.Span, ahead interval) (*Central, error) {
	limiter, err := rival.NewCentral([]lease.Limit{limit})
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
	return &Central{words[limit.Kind], n, float64(len(admitted)) / float64(max(n, 1))}, nil
}
