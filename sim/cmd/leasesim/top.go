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
	sort      string
	count     int
	interval  time.Duration
	perSecond int
	keysMax   int
	once      bool
}

func topCommand() *cobra.Command {
	var t top
	c := command("top", t.run)
	t.flags(c)
	f := c.Flags()
	f.StringVar(&t.sort, "sort", sorts[0], "sort order: "+strings.Join(sorts, ", "))
	f.IntVar(&t.count, "count", 20, "number of keys to show")
	f.DurationVar(&t.interval, "interval", 2*time.Second, "min time between two readings")
	f.IntVar(&t.perSecond, "keys-per-second", 50_000, "max keys read per second (0: no limit)")
	f.IntVar(&t.keysMax, "keys-max", 1_000_000, "max keys with readings in memory")
	f.BoolVar(&t.once, "once", false, "output of one block only")
	return c
}

func (t *top) run(c *cobra.Command) error {
	var all faults
	all.addf(!slices.Contains(sorts, t.sort), "--sort is %q, must be one of %s", t.sort,
		strings.Join(sorts, ", "))
	all.addf(t.count < 1 || t.count > 1000, "--count is %d, must be 1 to 1000", t.count)
	all.addf(t.interval < 100*time.Millisecond, "--interval is %v, must be at least 100ms", t.interval)
	all.addf(t.perSecond < 0, "--keys-per-second is %d, must be 0 or more", t.perSecond)
	all.addf(t.keysMax < 1, "--keys-max is %d, must be at least 1", t.keysMax)
	store, rdb, err := t.open(c.Context(), all)
	if err != nil {
		return err
	}
	defer rdb.Close()
	ctx := c.Context()
	r := &rates{keysMax: t.keysMax, keys: map[string]*rated{}}
	show, clear := phases(c.ErrOrStderr())
	screen := newScreen(c.OutOrStdout())
	for shown := false; ; {
		begun := time.Now()
		if shown {
			show = nil // the blocks show that it goes on
		}
		err := t.read(ctx, store, r, show)
		clear()
		var b block
		if err == nil && r.pass > 1 {
			b, err = t.block(ctx, store, r, time.Since(begun))
		}
		switch {
		case ctx.Err() != nil && shown && !t.once:
			return nil // as it is meant to end
		case err != nil && (t.once || !shown || ctx.Err() != nil):
			return t.failed(c, err)
		case err != nil:
			b = block{Time: time.Now(), Rows: []topRow{}, Error: err.Error()} // a server may come back
		}
		if b.Error != "" || r.pass > 1 {
			if err := t.write(screen, b); err != nil {
				return fmt.Errorf("leasesim: %w", err)
			}
			if shown = true; t.once {
				return nil
			}
		}
		select {
		case <-time.After(time.Until(begun.Add(t.interval))):
		case <-ctx.Done(): // the scan says so
		}
	}
}

// read takes one reading of all keys. show may be nil.
func (t *top) read(
	ctx context.Context, store *redisbucket.Store, r *rates,
	show func(phase string, done, of int),
) error {
	scan := redisbucket.Scan{Of: t.of(), PerSecond: t.perSecond}
	if show != nil {
		scan.Progress = func(done, of int64) { show(fmt.Sprintf("reading %d", r.pass), int(done), int(of)) }
	}
	r.begin()
	if err := store.Scan(ctx, scan, r.add); err != nil {
		return err
	}
	r.end()
	return nil
}

// block is one reading. Its JSON keys are part of the command's interface.
type block struct {
	Time    time.Time `json:"time"`
	Keys    int       `json:"keys"`
	TookMs  float64   `json:"took_ms"`
	Foreign int       `json:"unreadable"`    // what is there and no bucket of this version
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

// block returns the block to show after a pass that took `took`.
func (t *top) block(ctx context.Context, store *redisbucket.Store, r *rates, took time.Duration) (block,
	error) {
	b := block{Time: time.Now(), Keys: len(r.keys), TookMs: milliseconds(took), Foreign: r.foreign,
		Crowded: r.crowded, Rows: []topRow{}}
	rows := r.top(t.sort, t.count)
	var keys []string
	for _, k := range rows {
		keys = append(keys, k.key)
	}
	views, err := store.Views(ctx, keys)
	if err != nil {
		return b, err
	}
	for i, k := range rows {
		row := topRow{Key: k.key, New: k.isNew, Spent: k.perS[0], Denied: k.perS[1],
			Calls: k.perS[2], Holders: k.holders, Waiting: k.waiting, Limits: []string{}}
		row.look(views[i])
		b.Rows = append(b.Rows, row)
	}
	return b, nil
}

// look sets what the bucket of a key says, if it is there: the limits, and the lowest level.
func (r *topRow) look(v redisbucket.View) {
	if !v.Exists {
		return
	}
	for j, l := range v.Config.Limits {
		part := 100 * float64(v.Levels[j]) / float64(l.Capacity())
		if r.Level == nil || part < *r.Level {
			r.Level = &part
		}
		r.Limits = append(r.Limits, l.String())
	}
}

// write shows a block.
func (t *top) write(s *screen, b block) error {
	if t.out == view.FormatJSON {
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
	size     func() (width, height int) // nil: no terminal
	followed bool
}

func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	if f := terminal(w); f != nil {
		s.size = func() (int, int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil || width < 1 || height < 1 {
				return 80, 24
			}
			return width, height
		}
	}
	return s
}

func (s *screen) write(text string) error {
	if s.size == nil {
		if s.followed {
			text = "\n" + text
		}
		s.followed = true
		_, err := io.WriteString(s.w, text)
		return err
	}
	width, height := s.size()
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	out := "\033[H"
	for _, line := range lines[:min(len(lines), height-1)] {
		if r := []rune(line); len(r) > width {
			line = string(r[:width])
		}
		out += line + "\033[K\n"
	}
	if !s.followed {
		out = "\033[2J" + out
	}
	s.followed = true
	_, err := io.WriteString(s.w, out+"\033[J")
	return err
}
