package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// top is one execution of the command.
type top struct {
	looking
	sort string
	busy redisbucket.BusiestOptions
	once bool
}

// sorts names the sort orders of rows.
var sorts = func() (names []string) {
	for _, order := range redisbucket.Orders {
		names = append(names, string(order))
	}
	return names
}()

func topCommand() *cobra.Command {
	var t top
	c := command("top", t.run)
	t.flags(c)
	f := c.Flags()
	f.StringVar(&t.sort, "sort", sorts[0], "sort order: "+strings.Join(sorts, ", "))
	f.IntVar(&t.busy.Count, "count", 20, "number of keys to show")
	f.DurationVar(&t.busy.Interval, "interval", 2*time.Second, "min time between two readings")
	f.IntVar(&t.busy.KeysPerSecond, "keys-per-second", 50_000, "max keys read per second (0: no limit)")
	f.IntVar(&t.busy.KeysMax, "keys-max", 1_000_000, "max keys with readings in memory")
	f.BoolVar(&t.once, "once", false, "output of one block only")
	return c
}

func (t *top) run(c *cobra.Command) error {
	var all faults
	o := &t.busy
	all.addf(!slices.Contains(sorts, t.sort), "--sort is %q, must be one of %s", t.sort,
		strings.Join(sorts, ", "))
	all.addf(o.Count < 1 || o.Count > 1000, "--count is %d, must be 1 to 1000", o.Count)
	all.addf(o.Interval < 100*time.Millisecond, "--interval is %v, must be at least 100ms", o.Interval)
	all.addf(o.KeysPerSecond < 0, "--keys-per-second is %d, must be 0 or more", o.KeysPerSecond)
	all.addf(o.KeysMax < 1, "--keys-max is %d, must be at least 1", o.KeysMax)
	ctx := c.Context()
	store, rdb, err := t.open(ctx, all)
	if err != nil {
		return err
	}
	defer rdb.Close()
	if o.KeysPerSecond == 0 {
		o.KeysPerSecond = -1
	}
	o.By, o.Prefix = redisbucket.Order(t.sort), t.of()
	show, clear := statusLine(c.ErrOrStderr())
	if show != nil {
		show("reading all keys twice")
	}
	for screen := newScreen(c.OutOrStdout()); ; {
		b, err := t.read(ctx, store)
		clear()
		switch {
		case ctx.Err() != nil && screen.followed && !t.once:
			return nil // as it is meant to end
		case err != nil && (t.once || !screen.followed || ctx.Err() != nil):
			return t.failed(c, err)
		case err != nil: // a server may come back
			b.Error = err.Error()
			select {
			case <-time.After(o.Interval):
			case <-ctx.Done():
			}
		}
		if err := t.write(screen, b); err != nil {
			return fmt.Errorf("leasesim: %w", err)
		}
		if t.once {
			return nil
		}
	}
}

// block is one answer of the store. Its JSON keys are part of the command's interface.
type block struct {
	Time    time.Time `json:"time"`
	Keys    int       `json:"keys"`
	TookMs  float64   `json:"took_ms"`
	Foreign int       `json:"unreadable"`    // values that are no bucket of this version
	Crowded int       `json:"over_keys_max"` // buckets that are not counted, for want of room
	Rows    []topRow  `json:"rows"`
	Error   string    `json:"error,omitempty"` // the reading failed: the rest is empty
}

type topRow struct {
	Key     string   `json:"key"`
	New     bool     `json:"new"` // there is one reading only, so no rates
	Limits  []string `json:"limits"`
	Level   *float64 `json:"level_percent"` // of the burst, the lowest; null: the bucket has gone
	Spent   float64  `json:"spent_per_s"`
	Denied  float64  `json:"denied_per_s"`
	Calls   float64  `json:"calls_per_s"`
	Holders int64    `json:"holders"`
	Waiting int64    `json:"waiting"`
}

// read returns the block of two readings.
func (t *top) read(ctx context.Context, store *redisbucket.Store) (block, error) {
	begun := time.Now()
	busy, err := store.Busiest(ctx, t.busy)
	b := block{Time: time.Now(), Keys: busy.Read, TookMs: milliseconds(time.Since(begun)),
		Foreign: busy.Unreadable, Crowded: busy.LeftOut, Rows: []topRow{}}
	for _, k := range busy.Keys {
		row := topRow{Key: k.Key, New: k.New, Spent: k.Spent, Denied: k.Denied, Calls: k.Calls,
			Holders: k.Holders, Waiting: k.Waiting, Limits: []string{}}
		for i, l := range k.Limits {
			part := 100 * float64(k.Levels[i]) / float64(l.Capacity())
			if row.Level == nil || part < *row.Level {
				row.Level = &part
			}
			row.Limits = append(row.Limits, l.String())
		}
		b.Rows = append(b.Rows, row)
	}
	return b, err
}

// write shows a block.
func (t *top) write(s *screen, b block) error {
	if t.out == view.FormatJSON {
		s.followed = true
		return json.NewEncoder(s.w).Encode(b)
	}
	return s.write(t.text(b))
}

// text is a block for people.
func (t *top) text(b block) string {
	head := b.Time.Format("15:04:05") + "  " + t.redis + "  "
	if b.Error != "" {
		return head + "no reading: " + shownText(b.Error) + "\n"
	}
	head += fmt.Sprintf("%s, read in %s, by %s", view.Count(b.Keys, "key"),
		view.Shortly(time.Duration(b.TookMs*float64(time.Millisecond))), t.sort)
	if b.Foreign > 0 {
		head += fmt.Sprintf("; %d unreadable by this version", b.Foreign)
	}
	if b.Crowded > 0 {
		head += fmt.Sprintf("; %d left out by --keys-max", b.Crowded)
	}
	table := view.Table{Columns: strings.Split(
		"key,limits,>level %,>spent/s,>denied/s,>calls/s,>holders,>waiting", ",")}
	for _, r := range b.Rows {
		level, rate := "gone", func(x float64) string {
			if r.New {
				return "new"
			}
			return view.Number(float64(int64(10*x+0.5)) / 10)
		}
		if r.Level != nil {
			level = view.Number(float64(int64(10**r.Level)) / 10)
		}
		table.Add(shownKey(r.Key, 40), strings.Join(r.Limits, ", "), level, rate(r.Spent), rate(r.Denied),
			rate(r.Calls), view.Number(float64(r.Holders)), view.Number(float64(r.Waiting)))
	}
	return head + "\n\n" + table.String()
}

// screen shows one block after the other: on a terminal in place of the one before.
type screen struct {
	w        io.Writer
	height   func() int // nil: no terminal
	followed bool
}

func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	if f := terminal(w); f != nil {
		s.height = func() int {
			if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > 1 {
				return height
			}
			return 24
		}
	}
	return s
}

func (s *screen) write(text string) error {
	if s.height != nil {
		lines := strings.SplitAfter(text, "\n")
		// ?7l keeps the terminal from wrapping long lines.
		text = "\033[H\033[J\033[?7l" + strings.Join(lines[:min(len(lines), s.height()-1)], "") + "\033[?7h"
	} else if s.followed {
		text = "\n" + text
	}
	s.followed = true
	_, err := io.WriteString(s.w, text)
	return err
}
