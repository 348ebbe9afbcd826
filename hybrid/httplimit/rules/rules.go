package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
)

// ErrClosed is the error of Set and Reload after Shutdown or Close.
var ErrClosed = errors.New("rules: closed")

// Config has the settings that are not in a Table. All fields except Store are optional.
type Config struct {
	// Store holds the buckets.
	Store lease.Store
	// Base configures every rule's Limiter. Name, Limits, LimitsFor, Version and Priorities must be unset,
	// because the table has them. Scope must be unset too: for buckets in this process, set Store to a
	// memory.Store. This package logs to Base.Logger.
	Base hybrid.Config
	// Keys has additional key forms by name. A name consists of letters, digits, '_', '.' and '-'. The names
	// all, address and route are reserved.
	Keys map[string]httplimit.KeyFunc
	// Options are options of httplimit.Select, such as httplimit.OnLimit.
	Options []httplimit.Option
	// Interval is the time between two reads of the file; 0 means 5 s. Only Reload reads the file if Interval
	// is negative.
	Interval time.Duration
	// OnLimiter, if set, runs for each Limiter before its first use, for example to register metrics. gone,
	// if not nil, runs after the Limiter is closed. After a change of a rule's policy or of the version, two
	// Limiters of the same name may be open for a moment. OnLimiter and gone must not use the Rules.
	OnLimiter func(*hybrid.Limiter) (gone func())
	// OnReload, if set, runs with nil after a changed file has come into force, and with the error of an
	// invalid or unreadable file. OnReload must not close the Rules.
	OnReload func(err error)
}

const interval = 5 * time.Second // default of Config.Interval

// Rules limit requests by a Table, which Set or Reload may replace. Goroutines may share Rules. Use New or
// Open; the zero Rules do not work.
type Rules struct {
	cfg     Config
	limit   func(http.Handler) http.Handler
	current atomic.Pointer[set]

	mu       sync.Mutex // held while a Table comes into force
	status   Status     // without Status.Table
	alive    map[*limiter]struct{}
	isClosed bool

	endings     sync.WaitGroup  // shutdowns of Limiters of removed rules
	untilClosed context.Context // bounds endings; canceled by Shutdown and Close
	cancel      context.CancelFunc
	closing     sync.Once

	file file
}

// Status describes the Table in force and the changes so far.
type Status struct {
	Table    Table     // Table in force; read-only
	Since    time.Time // time at which Table came into force
	Reloaded int64     // number of Tables that came into force after the first
	Refused  int64     // number of refused Tables and files
	Err      error     // error of the last Table or file; nil if it is in force
}

// New returns Rules with a Table from Go. New does no I/O. The error of New names every violation and wraps
// ErrInvalid, or hybrid.ErrInvalidConfig if the rules contradict other open Limiters.
func New(t Table, cfg Config) (*Rules, error) {
	r := &Rules{cfg: cfg, alive: map[*limiter]struct{}{}}
	r.limit = httplimit.Select(r.selected, cfg.Options...)
	r.untilClosed, r.cancel = context.WithCancel(context.Background())
	if err := errors.Join(cfg.check(), t.check(cfg.Base, cfg.named())); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.changeLocked(t); err != nil {
		return nil, err
	}
	return r, nil
}

// check returns the violations of c that do not depend on the table.
func (c Config) check() error {
	bad := violation.List{Kind: ErrInvalid}
	if c.Store == nil {
		bad.Add("Config.Store", nil, "is nil")
	}
	for _, base := range []struct {
		field string
		set   bool
	}{
		{"Limits", c.Base.Limits != nil}, {"LimitsFor", c.Base.LimitsFor != nil}, {"Name", c.Base.Name != ""},
		{"Priorities", c.Base.Priorities != nil}, {"Scope", c.Base.Scope != hybrid.ScopeFleet},
		{"Version", c.Base.Version != 0},
	} {
		if base.set {
			bad.Add("Config.Base."+base.field, nil, "is set, must not be")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Keys)) {
		if !keyName.MatchString(name) || isReserved(name) {
			bad.Add("Config.Keys", nil, "has the name %q, must be of A-Z, a-z, 0-9, '_', '.' and '-', "+
				"and not all, address or route", name)
		}
		if c.Keys[name] == nil {
			bad.Add(fmt.Sprintf("Config.Keys[%q]", name), nil, "is nil")
		}
	}
	probe := c.Base
	probe.Name, probe.Limits, probe.Version, probe.Priorities = "", []hybrid.Limit{hybrid.Unlimited}, 0, nil
	probe.Scope = hybrid.ScopeFleet
	bad.Adopt(probe.Validate(), violation.Under("Config.Base"))
	return bad.Err()
}

// named returns Keys, but an empty map for nil, because nil means unknown Keys in Table.check.
func (c Config) named() map[string]httplimit.KeyFunc {
	if c.Keys == nil {
		return map[string]httplimit.KeyFunc{}
	}
	return c.Keys
}

// Handler limits next by the rules of the route that a request matches. A request that matches no route is
// not limited. One Table decides a request, even during a call of Set. Goroutines may share the returned
// handler.
func (r *Rules) Handler(next http.Handler) http.Handler { return r.limit(next) }

func (r *Rules) selected(req *http.Request) (httplimit.Selection, error) {
	for {
		if s := r.current.Load(); s.use() { // false if a newer set has replaced s
			return s.selectRules(req)
		}
	}
}

// Set replaces the Table. A rule of the same name keeps its buckets. Unless its policy or the version
// changes, the rule also keeps its Limiter, which proposes the new limits like hybrid.Limiter.Refresh. The
// Limiter of a removed rule is shut down after the last request that needs it. Set returns the errors of New,
// ErrClosed, or an error for a version below the version in force. After an error, the former Table stays in
// force.
func (r *Rules) Set(t Table) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := t.check(r.cfg.Base, r.cfg.named())
	if err == nil {
		err = r.changeLocked(t)
	}
	return r.recordLocked(err)
}

func (r *Rules) recordLocked(err error) error {
	r.status.Err = err
	if err != nil {
		r.status.Refused++
	}
	return err
}

// changeLocked puts the valid Table t into force.
func (r *Rules) changeLocked(t Table) error {
	if r.isClosed {
		return ErrClosed
	}
	before := r.current.Load()
	var had map[string]*limiter
	if before != nil {
		had = before.limiters
		if t.Version < before.table.Version {
			return fmt.Errorf("%w: version is %d, must be at least %d, the version in force; to restore "+
				"earlier rules, raise the version", ErrInvalid, t.Version, before.table.Version)
		}
	}
	limiters, err := r.limitersFor(t, had)
	if err != nil {
		return err
	}
	for _, l := range limiters {
		l.sets++
		if _, known := r.alive[l]; !known {
			r.alive[l] = struct{}{}
			if r.cfg.OnLimiter != nil {
				l.gone = r.cfg.OnLimiter(l.Limiter)
			}
		}
	}
	r.propose(t, limiters)
	r.current.Store(newSet(t, &r.cfg, limiters, r.endUnused))
	r.status.Since = time.Now()
	if unused := t.unused(); len(unused) > 0 {
		r.logger().Warn("rules: no route uses these settings",
			"settings", unused[:min(mistakesMax, len(unused))], "count", len(unused))
	}
	if before != nil {
		r.status.Reloaded++
		before.release()
	}
	return nil
}

// endUnused shuts down the Limiters of s that no other set uses.
func (r *Rules) endUnused(s *set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range s.limiters {
		if l.sets--; l.sets > 0 || r.isClosed {
			continue
		}
		delete(r.alive, l)
		r.endings.Go(func() {
			ctx, cancel := context.WithTimeout(r.untilClosed, shutdownMax)
			defer cancel()
			err := l.end(func(l *hybrid.Limiter) error { return l.Shutdown(ctx) })
			if err != nil && r.untilClosed.Err() == nil {
				r.logger().Warn("rules: cannot shut down a removed rule", "rule", l.config.Name,
					"error", safetext.Error(err))
			}
		})
	}
}

func (r *Rules) logger() *slog.Logger { return cmp.Or(r.cfg.Base.Logger, slog.Default()) }

// Limiters returns the Limiters of the rules in force by name. A later change may close the Limiters.
func (r *Rules) Limiters() map[string]*hybrid.Limiter {
	all := map[string]*hybrid.Limiter{}
	for name, l := range r.current.Load().limiters {
		all[name] = l.Limiter
	}
	return all
}

// Status returns the Table in force and the outcome of changes.
func (r *Rules) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Table = r.current.Load().table
	return s
}

// Shutdown stops polling the file, gives back the leases of the Limiters and closes the Limiters. Later
// requests fail with hybrid.ErrClosed, so shut the HTTP server down first. Shutdown returns the errors of
// hybrid.Limiter.Shutdown. A second Shutdown or Close waits for the first and returns nil.
func (r *Rules) Shutdown(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.cancel)()
	return r.close(func(l *hybrid.Limiter) error { return l.Shutdown(ctx) })
}

// Close is Shutdown without giving back leases, so Close needs no store.
func (r *Rules) Close() error {
	r.cancel()
	return r.close((*hybrid.Limiter).Close)
}

func (r *Rules) close(end func(*hybrid.Limiter) error) (err error) {
	r.closing.Do(func() {
		r.mu.Lock()
		r.isClosed = true
		r.mu.Unlock()
		r.file.close()
		errs := make(chan error, len(r.alive)) // alive does not change once isClosed is set
		for l := range r.alive {
			go func() { errs <- l.end(end) }()
		}
		for range r.alive {
			err = errors.Join(err, <-errs)
		}
		r.endings.Wait()
		r.cancel()
	})
	return err
}
