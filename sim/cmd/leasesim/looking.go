package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

type looking struct {
	redis, prefix, out string
}

func (l *looking) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&l.redis, "redis", "", "host:port or URL of the Redis, see leasesim live --help")
	f.StringVar(&l.prefix, "prefix", "yuzhi:", "redisbucket.Config.Prefix of the limiters")
	f.StringVar(&l.out, "out", view.FormatTable, "table, or json: the value that the library returns")
}

// show checks the flags and writes the result of look. The end of the context closes the client, because
// go-redis would wait for a missing answer until its own timeouts.
func (l *looking) show(
	c *cobra.Command, look func(context.Context, *redisbucket.Store) (view.Document, error),
) error {
	var wrong faults
	wrong.addf(l.redis == "", "--redis is missing, must be host:port or a URL")
	wrong.addf(l.out != view.FormatTable && l.out != view.FormatJSON, "--out is %q, must be table or json", l.out)
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	rdb, name, err := live.Dial(l.redis)
	if err != nil {
		return err
	}
	defer rdb.Close()
	store, err := redisbucket.New(rdb, redisbucket.Config{Prefix: l.prefix})
	if err != nil {
		return fmt.Errorf("%w: --prefix: %w", errUsage, err)
	}
	context.AfterFunc(c.Context(), func() { rdb.Close() })
	d, err := look(c.Context(), store)
	switch {
	case c.Context().Err() != nil:
		return fmt.Errorf("leasesim: %w", sim.ErrInterrupted)
	case errors.Is(err, lease.ErrInvalidConfig):
		return fmt.Errorf("%w: %w", errUsage, err)
	case err != nil:
		return fmt.Errorf("leasesim: Redis at %s: %w", name, err)
	}
	return d.Write(c.OutOrStdout(), l.out)
}

func inspectCommand() *cobra.Command {
	var l looking
	c := command("inspect", nil)
	c.Args = cobra.ExactArgs(1)
	c.RunE = func(c *cobra.Command, args []string) error {
		return l.show(c, func(ctx context.Context, store *redisbucket.Store) (view.Document, error) {
			v, err := store.Look(ctx, args[0])
			if err == nil && !v.Exists {
				err = fmt.Errorf("key %q has no bucket under prefix %q: it was never used, or was forgotten after it "+
					"was full again; for a limiter with a name write @NAME:KEY", args[0], l.prefix)
			}
			return bucketDocument(args[0], v), err
		})
	}
	l.flags(c)
	return c
}

func bucketDocument(key string, v redisbucket.View) view.Document {
	bucket := view.Table{Columns: []string{"bucket", "state"}}
	fact := func(name, format string, args ...any) { bucket.Add(name, fmt.Sprintf(format, args...)) }
	cfg := v.Config
	fact("version", "%d, revision %d; epoch %d", cfg.Version.Deploy, cfg.Version.Revision, v.Epoch)
	fact("leases", "%s leased, active weight %s; TTL %s, Target %s, overcommit %s", view.Count(v.Ledger, "token"),
		view.Number(v.ActiveWeight), view.Shortly(cfg.TTL), view.Shortly(cfg.Target), view.Number(cfg.Overcommit))
	fact("counted", "%s spent and %s denied, reported in %s", view.Count(v.Spent, "token"), view.Number(v.Denied),
		view.Count(v.Counter, "call"))
	if v.Frozen > 0 {
		fact("frozen", "no refill for %s, until the leases of a lost bucket have ended", view.Shortly(v.Frozen))
	}
	limits := view.Table{Columns: strings.Split("limit,>level,>burst,>level %,>next token in", ",")}
	for k, l := range cfg.Limits {
		next := "full"
		if v.Next[k] > 0 {
			next = view.Shortly(v.Next[k])
		}
		limits.Add(l.String(), view.Number(v.Levels[k]), view.Number(l.Capacity()), percent(v.Levels[k], l), next)
	}
	holders := view.Table{Columns: strings.Split("holder,>held,>weight,>heard ago,>expires in,>waiting", ",")}
	for _, h := range v.Holders {
		holders.Add(shownKey(h.ID, 40), view.Number(h.Held), view.Number(h.Weight), view.Shortly(h.Heard),
			view.Shortly(h.Expiry), view.Number(h.Waiting))
	}
	return view.Document{
		Title: "Key " + shownKey(key, 1<<10),
		Subtitle: fmt.Sprintf("created %s, called %s ago, forgotten in %s unless it is called",
			v.Created.UTC().Format("2006-01-02 15:04:05 MST"), view.Shortly(v.Called), view.Shortly(v.Expiry)),
		Sections: []view.Section{{Title: "State", Table: &bucket}, {Title: "Limits", Table: &limits},
			{Title: "Holders", Table: &holders}},
		Data: v,
	}
}

func percent(level int64, l lease.Limit) string {
	return view.Number(float64(int64(1000*float64(level)/float64(cmp.Or(l.Capacity(), 1)))) / 10)
}

func topCommand() *cobra.Command {
	var l looking
	var name, by string
	var o redisbucket.BusiestOptions
	c := command("top", func(c *cobra.Command) error {
		if o.By = redisbucket.Order(by); name != "" {
			o.Prefix = "@" + name + ":" // see hybrid.Config.Name
		}
		return l.show(c, func(ctx context.Context, store *redisbucket.Store) (view.Document, error) {
			b, err := store.Busiest(ctx, o)
			return busiestDocument(b), err
		})
	})
	l.flags(c)
	f := c.Flags()
	f.StringVar(&name, "name", "", "hybrid.Config.Name of the limiter (default: all limiters)")
	f.StringVar(&by, "sort", string(redisbucket.BySpent), fmt.Sprintf("sort order, one of %q", redisbucket.Orders))
	f.IntVar(&o.Count, "count", 20, "number of keys to show")
	f.DurationVar(&o.Interval, "interval", 2*time.Second, "min time between the two readings")
	f.IntVar(&o.KeysPerSecond, "keys-per-second", 50_000, "max keys read per second")
	return c
}

func busiestDocument(b redisbucket.Busiest) view.Document {
	head := view.Count(b.Read, "key")
	if b.Unreadable > 0 {
		head += fmt.Sprintf("; %d unreadable by this version", b.Unreadable)
	}
	if b.LeftOut > 0 {
		head += fmt.Sprintf("; %d left out", b.LeftOut)
	}
	table := view.Table{Columns: strings.Split(
		"key,limits,>level %,>spent/s,>denied/s,>calls/s,>holders,>waiting", ",")}
	for _, k := range b.Keys {
		level, lowest, limits := "gone", 2.0, []string{}
		for i, l := range k.Limits {
			if part := float64(k.Levels[i]) / float64(l.Capacity()); part < lowest {
				level, lowest = percent(k.Levels[i], l), part
			}
			limits = append(limits, l.String())
		}
		rate := func(x float64) string {
			if k.New {
				return "new"
			}
			return view.Number(float64(int64(10*x+0.5)) / 10)
		}
		table.Add(shownKey(k.Key, 40), strings.Join(limits, ", "), level, rate(k.Spent), rate(k.Denied), rate(k.Calls),
			view.Number(k.Holders), view.Number(k.Waiting))
	}
	return view.Document{Title: head, Sections: []view.Section{{Title: "Busiest", Table: &table}}, Data: b}
}

// shownKey formats a key on one line, without control characters.
func shownKey(key string, most int) string {
	if key == "" || strings.ContainsFunc(key, safetext.Odd) {
		key = strconv.Quote(key)
	}
	if r := []rune(key); len(r) > most {
		key = string(r[:most-1]) + "…"
	}
	return key
}
