package rules

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// takesOver is a little longer than a bucket keeps limits that no process proposes any more.
const takesOver = 2 * time.Second

// changed puts a table in YAML in place of the one in force.
func (t *world) changed(r *Rules, text string) {
	t.Helper()
	noErr(t, r.Set(tableOf(t, text)))
}

// Changed limits hold for keys that are in use all the time. Used tokens stay used.
func TestChangedLimitsHoldForKeysInUse(t *testing.T) {
	bubble(t, func(t *world) {
		r := t.with(limitedTo("100/h"))
		h, l := r.Handler(ok), r.Limiters()["all"]
		check(t, admitted(h, 200, 10*time.Millisecond, "GET /") == 100, "the burst is not 100")
		t.changed(r, limitedTo("300/h"))
		check(t, admitted(h, 200, 10*time.Millisecond, "GET /") <= 1, "what was used is not used any more")
		check(t, l.CachedLimits("all")[0] == hybrid.PerHour(300), "%v are in force", l.CachedLimits("all"))
		// A higher version is in force with the first call.
		t.changed(r, "version: 1\n"+limitedTo("1000/s"))
		got := admitted(h, 1000, time.Millisecond, "GET /")
		check(t, got > 900 && got <= 1000, "%d are admitted in a second", got)
		check(t, r.Limiters()["all"] != l, "another version has the same Limiter")
	})
}

// A rule keeps its Limiter as long as its version and its policy stay.
func TestWhichLimiterStays(t *testing.T) {
	const routes = "\nroutes: {/: {rules: [all]}}\n"
	bubble(t, func(t *world) {
		r := t.with("rules: {all: {key: all, limits: [100/h]}}" + routes)
		used := admitted(r.Handler(ok), 10, 0, "GET /")
		for _, c := range []struct {
			rule  string
			stays bool
		}{
			{"{key: all, limits: [200/h]}", true},
			{"{key: all, limits: [200/h, 10/s]}", true},
			{"{key: address, limits: [200/h]}", true},
			{"{key: all, limits: [200/h], fallback: local_share}", true}, // which it had
			{"{key: all, limits: [200/h], fallback: deny}", false},
			{"{key: all, limits: [200/h], shadow: true}", false},
			{"{key: all, limits: [200/h], priorities: [0.5]}", false},
			{"{key: all, limits: [100/h], priorities: [0.4]}", false},
		} {
			before := r.Limiters()["all"]
			t.changed(r, "rules: {all: "+c.rule+"}"+routes)
			synctest.Wait()
			check(t, (r.Limiters()["all"] == before) == c.stays, "%s: stays is not %t", c.rule, c.stays)
			check(t, t.living() == 1, "%s: there are %d Limiters", c.rule, t.living())
		}
		t.changed(r, limitedTo("100/h"))
		time.Sleep(takesOver)
		h := r.Handler(ok)
		used += admitted(h, 200, 0, "GET /")
		check(t, used == 100, "%d were admitted of 100/h", used)
	})
}

// The Limiter of a removed rule is shut down after it has decided the last request that needs it.
func TestARemovedRuleServesItsLastRequest(t *testing.T) {
	bubble(t, func(t *world) {
		r := t.with(`
rules: {slow: {key: all, limits: [1/10s]}, other: {key: all, limits: [100/s]}}
routes: {/: {rules: [slow, other]}}`, func(c *Config) {
			c.Options = []httplimit.Option{httplimit.Wait(time.Minute)}
		})
		h := r.Handler(ok)
		slow, other := r.Limiters()["slow"], r.Limiters()["other"]
		check(t, ask(h, "GET /").Code == http.StatusNoContent, "the first request is denied")
		answered := make(chan int)
		go func() { answered <- ask(h, "GET /").Code }()
		time.Sleep(time.Second)
		t.changed(r, "rules: {other: {key: all, limits: [100/s]}}\nroutes: {/: {rules: [other]}}")
		time.Sleep(5 * time.Second)
		check(t, t.living() == 2 && slow.Stats().Waiting == 1, "%d Limiters, %+v", t.living(), slow.Stats())
		check(t, rulesOf(ask(h, "GET /")) == "other", "the rule has not gone")
		code := <-answered
		check(t, code == http.StatusNoContent, "the last request is answered with %d", code)
		synctest.Wait()
		_, err := slow.Take(t.Context(), "all", 1)
		check(t, t.living() == 1 && errors.Is(err, hybrid.ErrClosed), "%d Limiters, %v", t.living(), err)
		_, err = other.Take(t.Context(), "all", 1)
		check(t, err == nil, "%v", err)
		// A rule that comes back has what it had.
		t.changed(r, "rules: {slow: {key: all, limits: [1/10s]}}\nroutes: {/: {rules: [slow]}}")
		synctest.Wait()
		check(t, r.Limiters()["slow"] != slow && t.living() == 1, "%d Limiters", t.living())
	})
}

// A handler that runs for hours does not keep a removed rule.
func TestAHandlerDoesNotKeepARule(t *testing.T) {
	bubble(t, func(t *world) {
		r := t.with(limitedTo("100/s"))
		h := r.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }))
		var wg sync.WaitGroup
		wg.Go(func() { ask(h, "GET /") })
		time.Sleep(time.Minute)
		t.changed(r, "rules: {}")
		synctest.Wait()
		check(t, t.living() == 0, "there are %d Limiters", t.living())
		wg.Wait()
	})
}

// A change that cannot be made leaves everything as it was.
func TestAChangeThatCannotBeMade(t *testing.T) {
	bubble(t, func(t *world) {
		r := t.with("version: 5\n" + limitedTo("10/h"))
		before := r.Limiters()["all"]
		t.changed(r, "version: 5\n"+limitedTo("10/h")) // which is no change
		err := r.Set(tableOf(t, "version: 4\n"+limitedTo("10/h")))
		older := err != nil && strings.Contains(err.Error(), "version is 4, must be at least 5")
		check(t, older && errors.Is(err, ErrInvalid), "%v", err)
		err = r.Set(Table{Version: 5, Rules: map[string]Rule{"x": {}}})
		kept := r.Limiters()["all"] == before && t.living() == 1
		check(t, errors.Is(err, ErrInvalid) && kept, "%v, %d Limiters", err, t.living())
		// Where another Limiter of the program has the same buckets with other settings, New says so.
		cfg := t.config()
		cfg.Base.Policy.Overcommit = 3
		_, err = New(tableOf(t, `
version: 5
rules: {a: {key: all, limits: [1/s]}, all: {key: all, limits: [10/h]}, z: {key: all, limits: [1/s]}}
routes: {/: {rules: [all]}}`), cfg)
		check(t, errors.Is(err, hybrid.ErrInvalidConfig) && t.living() == 1, "%v, %d Limiters", err, t.living())
		cfg.Base.Policy.Overcommit = 0
		only := tableOf(t, "version: 5\nrules: {a: {key: all, limits: [1/s]}}\nroutes: {/: {rules: [a]}}")
		again, err := New(only, cfg)
		noErr(t, err) // the Limiter of a was closed again
		noErr(t, again.Close())
	})
}

// A rule whose file changes every second admits no more than the largest of its limits in any
// window: a change grants no burst.
func TestChangesHandOutNoBurst(t *testing.T) {
	tables := []string{
		"rules: {r: {key: all, limits: [50/s burst 100]}}",
		"rules: {r: {key: all, limits: [20/s burst 40]}}",
		"rules: {r: {key: all, limits: [50/s burst 100, 1000/h]}}",
		"rules: {r: {key: all, limits: [1000/h, 20/s]}}",
		"rules: {r: {key: all, limits: [50/s burst 100], fallback: deny}}",
		"rules: {r: {key: all, limits: [20/s burst 40], priorities: [0.2]}}",
		"rules: {r: {key: all, limits: [50/s burst 100]}, new: {key: all, limits: [1000/s]}}",
		"rules: {}",
	}
	for seed := range testkit.Seeds(t, testkit.ShortOrLong(t, 5, 20, "seeds")) {
		bubble(t, func(t *world) {
			random := rand.New(rand.NewPCG(seed, 0))
			meter := audit.NewMeter(audit.Bound{Tokens: 50, Per: time.Second, Burst: 100})
			r := t.with(tables[0] + "\nroutes: {/: {rules: [r]}}")
			h, version, count := r.Handler(ok), 0, 0
			for range 60 {
				for range 100 {
					w := ask(h, "GET /")
					if w.Code == http.StatusNoContent && rulesOf(w) != "" {
						meter.Admit(time.Now().UnixNano(), 1)
						count++
					}
					time.Sleep(10 * time.Millisecond)
				}
				text := tables[random.IntN(len(tables))]
				if strings.Contains(text, "r:") {
					text += "\nroutes: {/: {rules: [r]}}"
				}
				version += random.IntN(2)
				t.changed(r, fmt.Sprintf("version: %d\n%s", version, text))
			}
			check(t, meter.ExceededBy() == 0, "exceeded by %d of %d, seed %d", meter.ExceededBy(), count, seed)
			check(t, count > 400, "only %d are admitted", count)
		})
	}
}

// One table decides the whole request, whatever changes meanwhile, and no Limiter is left over: with
// real goroutines, for the race detector.
func TestChangesUnderLoad(t *testing.T) {
	w := newWorld(t)
	tables := []Table{
		tableOf(t, `
rules: {a: {key: all, limits: [100000/s]}, b: {key: "path:x", limits: [100000/s]}}
routes: {"/{x}": {rules: [a, b]}}`),
		tableOf(t, `
rules:
  c: {key: "header:X-User", limits: [100000/s], shadow: true}
  b: {key: all, limits: [200000/s], fallback: deny}
routes: {"/{y}": {rules: [b, c], cost: 2}}`),
		tableOf(t, `
version: 1
rules: {b: {key: all, limits: [100000/s, 1000000/m]}}
routes: {"/{y}": {rules: [b], cost: 2}}`),
	}
	whole := map[string]bool{"a b": true, "b c": true, "b": true}
	cfg := w.config()
	cfg.Base.CallTimeout = 30 * time.Second // a slow machine must deny no request
	r, err := New(tables[0], cfg)
	noErr(t, err)
	h := r.Handler(ok)
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				request := httptest.NewRequest(http.MethodGet, "/x", nil)
				request.Header.Set("X-User", "ann")
				answer := httptest.NewRecorder()
				h.ServeHTTP(answer, request)
				if !whole[rulesOf(answer)] || answer.Code == http.StatusServiceUnavailable {
					t.Errorf("limited by %q: %d %s", rulesOf(answer), answer.Code, answer.Body)
					return
				}
				_ = r.Status()
			}
		})
	}
	for i := range testkit.PlainOrRace(300, 100) {
		table := tables[i%3]
		table.Version = int64(i / 3)
		noErr(t, r.Set(table))
		time.Sleep(time.Millisecond)
	}
	close(stop)
	load.Wait()
	onlyThose := func() bool { return w.living() == len(r.Limiters()) }
	testkit.Eventually(t, "only the Limiters in force are left", onlyThose)
	noErr(t, r.Shutdown(context.Background()))
}
