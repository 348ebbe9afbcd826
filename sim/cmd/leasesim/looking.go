package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/internal/keyhash"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// looking has the flags of inspect and top, the commands that read the buckets of a Redis.
type looking struct {
	redis, prefix, name, out string
}

func (l *looking) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&l.redis, "redis", "", "host:port or URL of the Redis, see leasesim live --help")
	f.StringVar(&l.prefix, "prefix", "yuzhi:", "redisbucket.Config.Prefix of the limiters")
	f.StringVar(&l.name, "name", "", "hybrid.Config.Name of the limiter")
	f.StringVar(&l.out, "out", view.FormatTable, "table, or json: the value that the library returns")
}

// show checks the flags and writes the result of look. show closes the client when the context ends, because
// go-redis waits for a missing answer until its own timeouts.
func (l *looking) show(
	c *cobra.Command, wrong faults, look func(context.Context, *redisbucket.Store) (view.Document, error),
) error {
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
	case err != nil:
		return fmt.Errorf("leasesim: Redis at %s: %w", name, err)
	}
	return d.Write(c.OutOrStdout(), l.out)
}

// of returns the prefix of the limiter's keys in the store; see hybrid.Config.Name.
func (l *looking) of() string {
	if l.name == "" {
		return ""
	}
	return "@" + l.name + ":"
}

// stored returns the key in the store for key, like storedKey of hybrid for a limiter named l.name.
func (l *looking) stored(key string) string {
	of := l.of()
	if of != "" && len(of)+len(key) > lease.KeyMax {
		key = keyhash.Of(key)
	}
	return of + key
}

func inspectCommand() *cobra.Command {
	var l looking
	c := command("inspect", nil)
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		var all faults
		all.addf(len(args) != 1, "inspect takes one key, not %d", len(args))
		return l.show(c, all, func(ctx context.Context, store *redisbucket.Store) (view.Document, error) {
			key := l.stored(args[0])
			v, err := store.Look(ctx, key)
			if err == nil && !v.Exists {
				err = fmt.Errorf("key %q has no bucket under prefix %q: it was never used, or was forgotten after it "+
					"was full again; the key of a limiter with a name needs --name", key, l.prefix)
			}
			if err != nil {
				return view.Document{}, err
			}
			// The user of inspect may lack permissions for lease calls, which is no fault of the server.
			refuses := store.Ping(ctx)
			if errors.Is(refuses, lease.ErrPermanent) {
				refuses = nil
			}
			return bucketDocument(key, v, refuses), nil
		})
	}
	l.flags(c)
	return c
}

// bucketDocument shows a bucket. refuses is the error with which the server refuses lease calls.
func bucketDocument(key string, v redisbucket.View, refuses error) view.Document {
	bucket := view.Table{Columns: []string{"bucket", "state"}}
	fact := func(name, format string, args ...any) { bucket.Add(name, fmt.Sprintf(format, args...)) }
	cfg := v.Config
	fact("version", "%d, revision %d; epoch %d", cfg.Version.Deploy, cfg.Version.Revision, v.Epoch)
	fact("leases", "%s leased, active weight %s; TTL %s, Target %s, overcommit %s", view.Count(v.Ledger, "token"),
		view.Number(v.ActiveWeight), view.Shortly(cfg.TTL), view.Shortly(cfg.Target), view.Number(cfg.Overcommit))
	fact("counted", "%s spent and %s denied, reported in %s", view.Count(v.Spent, "token"), view.Number(v.Denied),
		view.Count(v.Counter, "call"))
	if v.Contended {
		fact("contended", "a holder asked for more tokens than the level while others held some")
	}
	if v.Frozen > 0 {
		fact("frozen", "no refill for %s, until the leases of a lost bucket have ended", view.Shortly(v.Frozen))
	}
	if refuses != nil {
		fact("away", "this server refuses lease calls: %v", refuses)
	}
	limits := view.Table{Columns: strings.Split("limit,>level,>burst,>level %,>next token in", ",")}
	for k, l := range cfg.Limits {
		next := "full"
		if v.Next[k] > 0 {
			next = view.Shortly(v.Next[k])
		}
		limits.Add(l.String(), view.Number(v.Levels[k]), view.Number(l.Capacity()), percent(v.Levels[k], l), next)
	}
	d := view.Document{
		Title: "Key " + shownKey(key, 1<<10),
		Subtitle: fmt.Sprintf("created %s, called %s ago, forgotten in %s unless it is called",
			v.Created.UTC().Format("2006-01-02 15:04:05 MST"), view.Shortly(v.Called), view.Shortly(v.Expiry)),
		Sections: []view.Section{{Title: "State", Table: &bucket}, {Title: "Limits", Table: &limits}},
		Data:     v,
	}
	if len(v.Holders) == 0 {
		d.Verdicts = []view.Verdict{{Text: "No process holds a lease or has asked within a TTL."}}
		return d
	}
	holders := view.Table{Columns: strings.Split(
		"holder,>held,>weight,>heard ago,>expires in,>waiting,waits for", ",")}
	for _, h := range v.Holders {
		waits := ""
		if h.Waiting > 0 {
			o := protocol.StateOutlook(&v.Status, h.Waiting, 0, 0, false)
			waits = fmt.Sprintf("%s, %s at the earliest", o.Limit, view.Shortly(max(o.RetryAfter, v.Frozen)))
		}
		if h.Void {
			waits = strings.TrimPrefix(waits+"; its last call was void", "; ")
		}
		holders.Add(shownKey(h.ID, 40), view.Number(h.Held), view.Number(h.Weight), view.Shortly(h.Heard),
			view.Shortly(h.Expiry), view.Number(h.Waiting), waits)
	}
	d.Sections = append(d.Sections, view.Section{Title: "Holders", Table: &holders})
	return d
}

// percent formats a level as a percentage of the burst.
func percent(level int64, l lease.Limit) string {
	return view.Number(float64(int64(1000*float64(level)/float64(cmp.Or(l.Capacity(), 1)))) / 10)
}

func topCommand() *cobra.Command {
	var l looking
	var by string
	var o redisbucket.BusiestOptions
	var sorts []string
	for _, order := range redisbucket.Orders {
		sorts = append(sorts, string(order))
	}
	c := command("top", func(c *cobra.Command) error {
		var all faults
		all.addf(!slices.Contains(sorts, by), "--sort is %q, must be one of %s", by, strings.Join(sorts, ", "))
		all.addf(o.Count < 1 || o.Count > 1000, "--count is %d, must be 1 to 1000", o.Count)
		all.addf(o.Interval < 100*time.Millisecond, "--interval is %v, must be at least 100ms", o.Interval)
		all.addf(o.KeysPerSecond < 1, "--keys-per-second is %d, must be at least 1", o.KeysPerSecond)
		o.By, o.Prefix = redisbucket.Order(by), l.of()
		return l.show(c, all, func(ctx context.Context, store *redisbucket.Store) (view.Document, error) {
			b, err := store.Busiest(ctx, o)
			return busiestDocument(b), err
		})
	})
	l.flags(c)
	f := c.Flags()
	f.StringVar(&by, "sort", sorts[0], "sort order: "+strings.Join(sorts, ", "))
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
