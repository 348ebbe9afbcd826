package live

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// interval encloses a number of nanoseconds. The zero interval encloses nothing.
type interval struct{ from, to int64 }

// compareClocks asks each node for its time, and widens ahead by how much that clock may be ahead of
// stamps.Now. Only a calendar goes by the server's clock.
func (v *server) compareClocks(ctx context.Context, o Options, ahead *interval) error {
	if o.limit().Kind != lease.KindCalendar {
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

// audit finds the window that exceeds the bound of a key most, or comes nearest to it.
func (o Options) audit(byKey map[int][]audit.Span, ahead interval) (worst audit.Window, err error) {
	bound := audit.Of(o.limit(), o.Overcommit)
	for key := range max(o.Keys, 1) {
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
