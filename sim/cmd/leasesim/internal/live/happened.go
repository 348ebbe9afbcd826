package live

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// interval certainly encloses something, by stamps.Now. The zero interval encloses nothing.
type interval struct{ from, to int64 }

// happened is what was done to the limiter of a fleet, and what was found out about its server.
type happened struct {
	change, flush interval
	ahead         interval // by how much the server's clock shows more than stamps.Now
}

// enclose does f.
func enclose(in *interval, f func() error) error {
	in.from = stamps.Now()
	err := f()
	in.to = stamps.After()
	return err
}

// setLimits changes the limit of the whole fleet, as an operator's program does.
func (v *server) setLimits(ctx context.Context, o Options, to lease.Limit) error {
	store, err := redisbucket.New(v.rdb, redisbucket.Config{})
	if err != nil {
		return err
	}
	cfg := o.config()
	cfg.Logger = slog.New(slog.DiscardHandler)
	l, err := hybrid.New(store, cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.SetLimits(ctx, o.Key, to)
}

// flush deletes everything, on every node.
func (v *server) flush(ctx context.Context) error {
	return v.masters(ctx, func(ctx context.Context, rdb redis.Cmdable) error { return rdb.FlushAll(ctx).Err() })
}

// compareClocks asks each node for its time, and widens ahead by what its clock may be ahead.
func (v *server) compareClocks(ctx context.Context, ahead *interval) error {
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

// stretch is a part of a run, and what was promised for each window within it.
type stretch struct {
	interval
	bound audit.Bound
}

// promises are those of a run. A change of the limit holds for all once every lease from before it
// has ended; for a window that begins before that and ends after the change, the larger of two
// limits of one length is promised. A bucket that is lost and does not start empty is a whole new
// one, once.
func (o Options) promises(h happened) []stretch {
	const always = math.MaxInt64
	b := audit.Of(o.limit(), o.Overcommit)
	settled := 2 * int64(o.leased().TTL)
	to, _, changes := o.change()
	switch {
	case changes:
		later := audit.Of(to, o.Overcommit)
		all := []stretch{{interval{-always, h.change.from}, b}, {interval{h.change.to + settled, always}, later}}
		if b.Kind == later.Kind && b.Offset == later.Offset && (b.Kind == lease.KindBucket || b.Per == later.Per) {
			if o.limit().Rate() > to.Rate() {
				later.Tokens, later.Per = b.Tokens, b.Per
			}
			later.Burst = max(later.Burst, b.Burst)
			all = append(all, stretch{interval{-always, always}, later})
		}
		return all
	case h.flush != interval{} && !o.StartEmpty:
		twice := b
		twice.Overcommit += o.limit().Capacity()
		return []stretch{
			{interval{-always, h.flush.from}, b}, {interval{h.flush.to + settled, always}, b}, {interval{-always, always}, twice},
		}
	}
	return []stretch{{interval{-always, always}, b}}
}

// audit finds the window that goes farthest beyond what was promised, or comes nearest to it.
func (o Options) audit(spans []audit.Span, h happened) (worst audit.Window, err error) {
	for _, s := range o.promises(h) {
		var within []audit.Span
		for _, x := range spans {
			if x.Before < s.from || x.After > s.to {
				continue
			}
			if s.bound.Kind == lease.KindCalendar { // which is by the server's clock
				x.Before, x.After = x.Before+h.ahead.from, x.After+h.ahead.to
			}
			within = append(within, x)
		}
		w, err := audit.Worst(within, s.bound)
		if err != nil {
			return w, fmt.Errorf("leasesim: audit: %w", err)
		}
		if s.bound.Kind == lease.KindCalendar {
			w.From, w.To = w.From-h.ahead.from, w.To-h.ahead.to
		}
		near := func(w audit.Window) float64 { return float64(w.Admitted) / max(w.Bound, 1) }
		if cmp.Or(cmp.Compare(w.ExceededBy, worst.ExceededBy), cmp.Compare(near(w), near(worst))) > 0 {
			worst = w
		}
	}
	return worst, nil
}
