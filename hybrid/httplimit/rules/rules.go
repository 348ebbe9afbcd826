package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/lease"
)

// ErrClosed is the error of a change after Shutdown or Close.
var ErrClosed = errors.New("rules: closed")

// Config is what a table does not declare. Store is required; every other zero field means a good
// default.
type Config struct {
	// Store is where the buckets are.
	Store lease.Store
	// Base is the configuration of every rule's Limiter but for what the table says: Name, Limits,
	// LimitsFor, Version and Priorities must not be set, nor Scope, whose buckets a change of the
	// policy would forget (for buckets in this process, Store can be a memory.Store). Its Logger
	// is also that of this package.
	Base hybrid.Config
	// Keys are key forms of your own, by the names that rules have for them: letters, digits, '_',
	// '.' and '-', but not all, address or route.
	Keys map[string]httplimit.KeyFunc
	// Options are those of httplimit.Select, such as httplimit.OnLimit.
	Options []httplimit.Option
	// Interval is how often Open looks whether the file says something else. 0 means 5 s, and below 0
	// nobody looks: Reload does.
	Interval time.Duration
	// OnLimiter, if set, is told of each Limiter before it is used, such as to register its metrics,
	// and what it returns, if not nil, runs once the Limiter is closed. Where the policy or the
	// version of a rule changes, the new Limiter and the old one, of the same name, are there
	// together for a moment. Neither may use the Rules.
	OnLimiter func(*hybrid.Limiter) (gone func())
	// OnReload, if set, runs when a changed file has come into force, with nil, or has been refused,
	// with why. It may use the Rules, but not end them.
	OnReload func(err error)
}

// interval is the default of Config.Interval: what a person who has saved a file waits for.
const interval = 5 * time.Second

// Rules limit requests by a table, which may be replaced while they do. Goroutines share one. Use
// New or Open; the zero value does not work.
type Rules struct {
	cfg     Config
	limit   func(http.Handler) http.Handler
	current atomic.Pointer[set]

	mu       sync.Mutex // of changes
	status   Status     // but for the table
	alive    map[*limiter]struct{}
	isClosed bool

	endings     sync.WaitGroup  // of Limiters whose rule has gone
	untilClosed context.Context // of those, which Shutdown and Close do not let go on for longer
	cancel      context.CancelFunc
	closing     sync.Once

	file file
}

// Status is what is in force, and what became of changes.
type Status struct {
	Table    Table     // in force; not to be changed
	Since    time.Time // when it came into force
	Reloaded int64     // how often another table came into force
	Refused  int64     // how often another table, or what the file said, could not be used
	Err      error     // why what was last read is not in force; nil if it is
}

// New returns Rules with a table from Go. It does no I/O. Errors wrap ErrInvalid, or
// hybrid.ErrInvalidConfig where the rules are at odds with other open Limiters, and name every
// violation.
func New(t Table, cfg Config) (*Rules, error) {
	r := &Rules{cfg: cfg, alive: map[*limiter]struct{}{}}
	r.limit = httplimit.Select(r.selected, cfg.Options...)
	r.untilClosed, r.cancel = context.WithCancel(context.Background())
	if err := errors.Join(cfg.check(), joined(t.check(cfg.Base, cfg.named()))); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.changeLocked(t); err != nil {
		return nil, err
	}
	return r, nil
}

// check reports what is wrong with c, whatever the table is.
func (c Config) check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: Config."+format, append([]any{ErrInvalid}, args...)...))
	}
	if c.Store == nil {
		bad("Store is nil")
	}
	for field, set := range map[string]bool{
		"Name": c.Base.Name != "", "Limits": c.Base.Limits != nil, "LimitsFor": c.Base.LimitsFor != nil,
		"Version": c.Base.Version != 0, "Priorities": c.Base.Priorities != nil,
		"Scope": c.Base.Scope != hybrid.ScopeFleet,
	} {
		if set {
			bad("Base.%s is set, must not be", field)
		}
	}
	for name, key := range c.Keys {
		if !keyName.MatchString(name) || isReserved(name) {
			bad("Keys has the name %q, must be of A-Z, a-z, 0-9, '_', '.' and '-', and not all, address or route",
				name)
		}
		if key == nil {
			bad("Keys[%q] is nil", name)
		}
	}
	probe := c.Base
	probe.Name, probe.Limits, probe.Version, probe.Priorities = "", []hybrid.Limit{hybrid.Unlimited}, 0, nil
	probe.Scope = hybrid.ScopeFleet
	for _, text := range textsOf(probe.Validate()) {
		bad("Base: %s", text)
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// named is Keys, which Parse does not know, and which is known here also where it is nil.
func (c Config) named() map[string]httplimit.KeyFunc {
	if c.Keys == nil {
		return map[string]httplimit.KeyFunc{}
	}
	return c.Keys
}

// joined returns one error for all violations.
func joined(all []violation) error {
	var errs []error
	for _, v := range all {
		errs = append(errs, fmt.Errorf("%w: %s: %s", ErrInvalid, v.path, v.text))
	}
	return errors.Join(errs...)
}

// Handler limits next by the rules of the route that a request matches, and does not limit one that
// matches none. A request is decided by one table as a whole, whatever changes meanwhile, and all
// its rules by one Join. Goroutines share it.
func (r *Rules) Handler(next http.Handler) http.Handler { return r.limit(next) }

func (r *Rules) selected(req *http.Request) (httplimit.Selection, error) {
	for {
		if s := r.current.Load(); s.use() { // otherwise there is another one by now
			return s.of(req)
		}
	}
}

// Set puts t in place of the table in force. What keys have used stays used, where the rules of
// both have the same name. A rule keeps its Limiter and takes new limits as hybrid.Limiter.Refresh
// says; where its policy or the version changes, it gets another Limiter of the same buckets. The
// Limiter of a rule that has gone is shut down after the last request that needs it. With an error,
// which is as that of New, nothing changes.
func (r *Rules) Set(t Table) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := joined(t.check(r.cfg.Base, r.cfg.named()))
	if err == nil {
		err = r.changeLocked(t)
	}
	return r.tellLocked(err)
}

// tellLocked notes what became of a change.
func (r *Rules) tellLocked(err error) error {
	r.status.Err = err
	if err != nil {
		r.status.Refused++
	}
	return err
}

// changeLocked brings t, which is valid, into force.
func (r *Rules) changeLocked(t Table) error {
	if r.isClosed {
		return ErrClosed
	}
	before := r.current.Load()
	var had map[string]*limiter
	if before != nil {
		had = before.limiters
		if t.Version < before.table.Version {
			return fmt.Errorf("%w: version is %d, must be at least %d, which is in force: the highest one wins, "+
				"so a way back is a higher one with the limits of before", ErrInvalid, t.Version, before.table.Version)
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
	r.current.Store(newSet(t, &r.cfg, limiters, r.ended))
	r.status.Since = time.Now()
	if before != nil {
		r.status.Reloaded++
		before.release()
	}
	return nil
}

// ended shuts the Limiters down that no set has any more.
func (r *Rules) ended(s *set) {
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
			if err := l.end(func(l *hybrid.Limiter) error { return l.Shutdown(ctx) }); err != nil && r.untilClosed.Err() == nil {
				r.logger().Warn("rules: a rule that has gone", "rule", l.config.Name, "error", safetext.Error(err))
			}
		})
	}
}

func (r *Rules) logger() *slog.Logger { return cmp.Or(r.cfg.Base.Logger, slog.Default()) }

// Limiters are those of the rules in force, by name. A later change may close them.
func (r *Rules) Limiters() map[string]*hybrid.Limiter {
	all := map[string]*hybrid.Limiter{}
	for name, l := range r.current.Load().limiters {
		all[name] = l.Limiter
	}
	return all
}

// Status says what is in force, and what became of changes.
func (r *Rules) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Table = r.current.Load().table
	return s
}

// Shutdown looks at the file no more, gives back what the Limiters hold, and closes them. It
// returns when all have ended, with the errors of hybrid.Limiter.Shutdown. Requests that come later
// fail with hybrid.ErrClosed, so the server is shut down before. A second Shutdown or Close waits
// for the first, and returns nil.
func (r *Rules) Shutdown(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.cancel)()
	return r.close(func(l *hybrid.Limiter) error { return l.Shutdown(ctx) })
}

// Close is Shutdown that gives nothing back and needs no store.
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
		errs := make([]error, 0, len(r.alive)) // which nobody changes any more
		var mu sync.Mutex
		var wg sync.WaitGroup
		for l := range r.alive {
			wg.Go(func() {
				err := l.end(end)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		wg.Wait()
		r.endings.Wait()
		r.cancel()
		err = errors.Join(errs...)
	})
	return err
}
