package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/internal/keyhash"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func inspectCommand() *cobra.Command {
	var l looking
	c := command("inspect", nil)
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		var all faults
		all.addf(len(args) != 1, "inspect takes one key, not %d", len(args))
		store, rdb, err := l.open(c.Context(), all)
		if err != nil {
			return err
		}
		defer rdb.Close()
		key := l.stored(args[0])
		v, err := store.Look(c.Context(), key)
		if err != nil {
			return l.failed(c, err)
		}
		if !v.Exists {
			return fmt.Errorf("leasesim: key %q has no bucket under prefix %q: it was never used, or was "+
				"forgotten after it was full again", key, l.prefix)
		}
		b := inspected(key, v)
		// The user of a reader may lack the permissions of a lease call, which says nothing about the server.
		if err := store.Ping(c.Context()); err != nil && !errors.Is(err, lease.ErrPermanent) {
			b.Refuses = err.Error()
		}
		if l.out == view.FormatJSON {
			err = json.NewEncoder(c.OutOrStdout()).Encode(b)
		} else {
			_, err = io.WriteString(c.OutOrStdout(), b.text())
		}
		return err
	}
	l.flags(c)
	return c
}

// stored is the key under which a limiter of that name keeps key, as hybrid's storedKey says.
func (l *looking) stored(key string) string {
	of := l.of()
	if of != "" && len(of)+len(key) > lease.KeyMax {
		key = keyhash.Of(key)
	}
	return of + key
}

// bucket is the output of inspect. Its JSON keys are part of the command's interface.
type bucket struct {
	Key    string        `json:"key"`
	Limits []bucketLimit `json:"limits"`

	Ledger       int64 `json:"ledger"`
	ActiveWeight int64 `json:"active_weight"`
	Waiting      int64 `json:"waiting"`
	Contended    bool  `json:"contended"`
	Spent        int64 `json:"spent"`
	Denied       int64 `json:"denied"`
	Calls        int64 `json:"calls"`

	Created    time.Time `json:"created"`
	CalledMs   float64   `json:"called_ms_ago"`
	ExpiryMs   float64   `json:"expires_in_ms"`
	FrozenMs   float64   `json:"frozen_for_ms"`
	TTLMs      float64   `json:"ttl_ms"`
	TargetMs   float64   `json:"target_ms"`
	Overcommit int64     `json:"overcommit"`
	StartEmpty bool      `json:"start_empty"`
	Version    int64     `json:"version"`
	Revision   int64     `json:"revision"`
	Epoch      int64     `json:"epoch"`

	Holders []bucketHolder `json:"holders"`
	Refuses string         `json:"refuses_lease_calls,omitempty"` // why the server does
}

type bucketLimit struct {
	Limit  string  `json:"limit"`
	Level  int64   `json:"level"` // below 0 where a charge is owed
	Burst  int64   `json:"burst"`
	NextMs float64 `json:"next_token_in_ms"` // 0 where it is full
}

type bucketHolder struct {
	ID       string  `json:"id"`
	Held     int64   `json:"held"`
	Weight   int64   `json:"weight"`
	Waiting  int64   `json:"waiting"`
	ServedMs float64 `json:"waiting_served_in_ms"` // at the earliest; 0 where nothing waits
	Limit    string  `json:"waiting_for,omitempty"`
	Granted  int64   `json:"granted"`
	HeardMs  float64 `json:"heard_ms_ago"`
	ExpiryMs float64 `json:"expires_in_ms"`
	Void     bool    `json:"void"`
}

// inspected is a view in the form of its JSON.
func inspected(key string, v redisbucket.View) *bucket {
	c := v.Config
	b := &bucket{
		Key: key, Ledger: v.Ledger, ActiveWeight: v.ActiveWeight, Contended: v.Contended, Spent: v.Spent,
		Denied: v.Denied, Calls: v.Counter, Created: v.Created.UTC(), CalledMs: milliseconds(v.Called),
		ExpiryMs: milliseconds(v.Expiry), FrozenMs: milliseconds(v.Frozen), TTLMs: milliseconds(c.TTL),
		TargetMs: milliseconds(c.Target), Overcommit: c.Overcommit, StartEmpty: c.StartEmpty,
		Version: c.Version.Deploy, Revision: c.Version.Revision, Epoch: v.Epoch, Holders: []bucketHolder{},
	}
	for k, l := range c.Limits {
		b.Limits = append(b.Limits, bucketLimit{l.String(), v.Levels[k], l.Capacity(), milliseconds(v.Next[k])})
	}
	for _, h := range v.Holders {
		one := bucketHolder{ID: h.ID, Held: h.Held, Weight: h.Weight, Waiting: h.Waiting, Granted: h.Granted,
			HeardMs: milliseconds(h.Heard), ExpiryMs: milliseconds(h.Expiry), Void: h.Void}
		if h.Waiting > 0 {
			o := protocol.StateOutlook(&v.Status, h.Waiting, 0, 0, false)
			one.ServedMs, one.Limit = milliseconds(max(o.RetryAfter, v.Frozen)), o.Limit.String()
		}
		b.Waiting += h.Waiting
		b.Holders = append(b.Holders, one)
	}
	return b
}

// text is the bucket for people.
func (b *bucket) text() string {
	var out strings.Builder
	fact := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	span := func(ms float64) string { return view.Shortly(time.Duration(ms * float64(time.Millisecond))) }
	number := func(n int64) string { return view.Number(float64(n)) }
	fact("key", "%s", shownKey(b.Key, 1<<10))
	fact("created", "%s, called %s ago, forgotten in %s unless it is called",
		b.Created.Format("2006-01-02 15:04:05 MST"), span(b.CalledMs), span(b.ExpiryMs))
	fact("version", "%d, revision %d; epoch %d", b.Version, b.Revision, b.Epoch)
	fact("leases", "%s leased, active weight %s; TTL %s, Target %s, overcommit %s",
		view.Count(b.Ledger, "token"),
		number(b.ActiveWeight), span(b.TTLMs), span(b.TargetMs), number(b.Overcommit))
	fact("counted", "%s spent and %s denied, reported in %s", view.Count(b.Spent, "token"), number(b.Denied),
		view.Count(b.Calls, "call"))
	if b.Contended {
		fact("contended", "a holder asked for more tokens than the level while others held some")
	}
	if b.FrozenMs > 0 {
		fact("frozen", "no refill for %s, until the leases of a lost bucket have ended", span(b.FrozenMs))
	}
	if b.Refuses != "" {
		fact("away", "this server refuses lease calls: %s", b.Refuses)
	}
	limits := view.Table{Columns: strings.Split("limit,>level,>burst,>level %,>next token in", ",")}
	for _, l := range b.Limits {
		next := "full"
		if l.NextMs > 0 {
			next = span(l.NextMs)
		}
		limits.Add(l.Limit, number(l.Level), number(l.Burst), percent(l.Level, l.Burst), next)
	}
	out.WriteString("\n" + limits.String() + "\n")
	if len(b.Holders) == 0 {
		out.WriteString("No process holds a lease or has asked within a TTL.\n")
		return out.String()
	}
	holders := view.Table{Columns: strings.Split(
		"holder,>held,>weight,>heard ago,>expires in,>waiting,waits for", ",")}
	for _, h := range b.Holders {
		waits := ""
		if h.Waiting > 0 {
			waits = fmt.Sprintf("%s, %s at the earliest", h.Limit, span(h.ServedMs))
		}
		if h.Void {
			waits = strings.TrimPrefix(waits+"; its last call was void", "; ")
		}
		holders.Add(shownKey(h.ID, 40), number(h.Held), number(h.Weight), span(h.HeardMs), span(h.ExpiryMs),
			number(h.Waiting), waits)
	}
	out.WriteString(holders.String())
	return out.String()
}

// percent is a level as a part of its burst.
func percent(level, burst int64) string {
	return view.Number(float64(int64(1000*float64(level)/float64(cmp.Or(burst, 1)))) / 10)
}
