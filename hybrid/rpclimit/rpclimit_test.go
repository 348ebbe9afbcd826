package rpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridtest"
	"github.com/yuzhi-go/yuzhi/hybrid/rpclimit"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// call stands for the metadata of a call.
type call struct {
	user, tenant string
	cost         int64
	class        int
	health       bool
}

type callKey struct{}

func (c call) context() context.Context { return context.WithValue(context.Background(), callKey{}, c) }

func callOf(ctx context.Context) call { return ctx.Value(callKey{}).(call) }

func user(ctx context.Context) (string, error)   { return callOf(ctx).user, nil }
func tenant(ctx context.Context) (string, error) { return callOf(ctx).tenant, nil }

var ann = call{user: "ann", tenant: "acme"}

// limiter starts one process on store, or on a store of its own if that is nil. It ends with the test.
func limiter(t *testing.T, store lease.Store, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	if store == nil {
		store = memory.New(nil)
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	l, err := hybrid.New(store, cfg)
	testkit.NoErr(t, err)
	t.Cleanup(func() {
		l.Close()
		s := l.Stats()
		testkit.Check(t, s.Conserved(), "tokens were lost: %+v", s)
	})
	return l
}

func config(l hybrid.Limit) hybrid.Config { return hybrid.Config{Limits: []hybrid.Limit{l}} }

// inRealTime is config for a test outside a bubble, where a slow machine must be no outage.
func inRealTime(l hybrid.Limit) hybrid.Config {
	return hybrid.Config{Limits: []hybrid.Limit{l}, CallTimeout: time.Minute}
}

func perMinute(n int64) hybrid.Config { return inRealTime(hybrid.PerMinute(n)) }

// The calls of the burst are admitted, the next one is denied, and a call after its RetryAfter is admitted.
func TestACallAboveTheLimitIsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := rpclimit.New(limiter(t, nil, perMinute(60)), user)
		for range 60 {
			testkit.NoErr(t, l.Limit(ann.context()))
		}
		err := l.Limit(ann.context())
		var denial rpclimit.Denial
		testkit.Must(t, errors.Is(err, rpclimit.ErrDenied) && errors.As(err, &denial), "want a denial, got %v", err)
		testkit.Check(t, denial.Result.Key == "ann" && denial.Result.RetryAfter > 0, "%+v", denial.Result)
		testkit.Check(t, !strings.Contains(err.Error(), "ann"), "the text has the key: %v", err)
		testkit.NoErr(t, l.Limit(call{user: "bob"}.context()))
		time.Sleep(denial.Result.RetryAfter)
		testkit.NoErr(t, l.Limit(ann.context()))
	})
}

// Each reason has an error of its own, which Status converts.
func TestWhyACallIsNotAdmitted(t *testing.T) {
	uncertified := errors.New("no certificate")
	ended, end := context.WithCancel(ann.context())
	end()
	refused := func(context.Context) (string, error) { return "ann", uncertified }
	nothing, absent := inRealTime(hybrid.Blocked), perMinute(60)
	absent.Policy.Fallback = hybrid.FallbackDeny
	away := &hybridtest.FaultyStore{Store: memory.New(nil)}
	away.Away()
	free, closed := limiter(t, nil, perMinute(60)), limiter(t, nil, perMinute(60))
	closed.Close()
	for name, row := range map[string]struct {
		limiter *hybrid.Limiter
		key     rpclimit.KeyFunc
		cost    int64
		ctx     context.Context
		want    error
		denial  bool
	}{
		"a limit":             {limiter(t, nil, nothing), user, 1, ann.context(), rpclimit.ErrDenied, true},
		"the store is away":   {limiter(t, away, absent), user, 1, ann.context(), hybrid.ErrUnavailable, true},
		"no key":              {free, refused, 1, ann.context(), rpclimit.ErrNoKey, false},
		"why there is no key": {free, refused, 1, ann.context(), uncertified, false},
		"an empty key":        {free, user, 1, call{}.context(), rpclimit.ErrNoKey, false},
		"above the burst":     {free, user, 61, ann.context(), hybrid.ErrExceedsBurst, false},
		"a cost below 0":      {free, user, -1, ann.context(), hybrid.ErrInvalidN, false},
		"the call ended":      {free, user, 1, ended, context.Canceled, false},
		"closed":              {closed, user, 1, ann.context(), hybrid.ErrClosed, false},
	} {
		cost := rpclimit.Cost(func(context.Context) int64 { return row.cost })
		err := rpclimit.New(row.limiter, row.key, cost).Limit(row.ctx)
		testkit.Check(t, errors.Is(err, row.want), "%s: %v, want %v", name, err, row.want)
		testkit.Check(t, errors.Is(err, rpclimit.ErrDenied) == (name == "a limit"), "%s: %v", name, err)
		testkit.Check(t, errors.As(err, new(rpclimit.Denial)) == row.denial, "%s: %T", name, err)

		answer, told := errors.New("a status"), error(nil)
		status := rpclimit.Status(func(err error) error { told = err; return answer })
		got := rpclimit.New(row.limiter, row.key, cost, status).Limit(row.ctx)
		testkit.Check(t, got == answer, "%s: %v, want what Status returns", name, got)
		testkit.Check(t, errors.Is(told, row.want), "%s: Status is told %v, want %v", name, told, row.want)

		open := rpclimit.Status(func(error) error { return nil })
		got = rpclimit.New(row.limiter, row.key, cost, open).Limit(row.ctx)
		// Status admits all calls but those that have ended or ask for too much: otherwise a client could
		// have every call served by ending it at once, or by a cost above the burst.
		kept := row.ctx == ended || row.cost != 1
		testkit.Check(t, !kept && got == nil || kept && errors.Is(got, row.want),
			"%s: %v, admitted by Status", name, got)
	}
	says := func(context.Context) (string, error) { return "", fmt.Errorf("%w: no metadata", rpclimit.ErrNoKey) }
	err := rpclimit.New(free, says).Limit(ann.context())
	testkit.Check(t, errors.Is(err, rpclimit.ErrNoKey) && strings.Count(err.Error(), "no key") == 1, "%v", err)
	never := rpclimit.Status(func(err error) error { return errors.New("Status is asked of an admitted call") })
	testkit.NoErr(t, rpclimit.New(free, user, never).Limit(ann.context()))
}

// A call that one limit denies takes nothing from the other.
func TestSeveralLimitsAreOneDecision(t *testing.T) {
	users, tenants := limiter(t, nil, perMinute(3)), limiter(t, nil, perMinute(5))
	l := rpclimit.New(users, user, rpclimit.Also(tenants, tenant))
	admitted := func(c call) (n int, by string) {
		var last rpclimit.Denial
		for range 10 {
			if err := l.Limit(c.context()); err == nil {
				n++
			} else {
				testkit.Must(t, errors.As(err, &last), "%v", err)
			}
		}
		return n, last.Result.Key
	}
	n, by := admitted(ann)
	testkit.Check(t, n == 3 && by == "ann", "ann has %d calls, denied by %q", n, by)
	n, by = admitted(call{user: "bob", tenant: "acme"})
	testkit.Check(t, n == 2 && by == "acme", "bob has %d calls, denied by %q", n, by)
	testkit.Check(t, users.Stats().Admitted == 5 && tenants.Stats().Admitted == 5, "%d and %d",
		users.Stats().Admitted, tenants.Stats().Admitted)
	err := l.Limit(call{user: "ann"}.context())
	testkit.Check(t, errors.Is(err, rpclimit.ErrNoKey), "without a tenant: %v", err)
}

// Cost, class and skip are asked for each call.
func TestCostClassAndSkip(t *testing.T) {
	cfg := inRealTime(hybrid.PerHour(100))
	cfg.Priorities = []float64{0.5}
	limited := limiter(t, nil, cfg)
	l := rpclimit.New(limited, user,
		rpclimit.Cost(func(ctx context.Context) int64 { return callOf(ctx).cost }),
		rpclimit.Class(func(ctx context.Context) int { return callOf(ctx).class }),
		rpclimit.Skip(func(ctx context.Context) bool { return callOf(ctx).health }))
	for i, step := range []struct {
		call call
		want error
	}{
		{call{user: "ann", cost: 40, class: 1}, nil},
		{call{user: "ann", cost: 20, class: 1}, rpclimit.ErrDenied}, // 60 are left, of which 50 are not for class 1
		{call{user: "ann", cost: 60}, nil},
		{call{user: "ann", cost: 1}, rpclimit.ErrDenied},
		{call{user: "ann", cost: 0}, nil},
		{call{user: "ann", cost: 1, health: true}, nil},
		{call{health: true}, nil}, // its key is not asked for
	} {
		err := l.Limit(step.call.context())
		testkit.Check(t, errors.Is(err, step.want), "call %d, %+v: %v, want %v", i, step.call, err, step.want)
	}
	testkit.Check(t, limited.Stats().Admitted == 100, "%d tokens", limited.Stats().Admitted)
}

// A call waits no longer than Wait and its deadline allow, and not at all if that is too short.
func TestWaitIsBounded(t *testing.T) {
	const s = time.Second
	for name, row := range map[string]struct {
		patience, deadline time.Duration // of the call, if any
		cancel             time.Duration // when the client goes away, if it does
		took               time.Duration
		denials            int64 // in Stats: one, and one more for a wait without tokens
		want               error
	}{
		"not at all":          {denials: 1, patience: 0, want: rpclimit.ErrDenied},
		"long enough":         {denials: 1, patience: 2 * s, took: s},
		"just long enough":    {denials: 1, patience: 1100 * time.Millisecond, took: s},
		"not long enough":     {denials: 1, patience: 999 * time.Millisecond, want: rpclimit.ErrDenied},
		"the call's deadline": {denials: 2, patience: 2 * s, deadline: s / 2, want: rpclimit.ErrDenied},
		"a later deadline":    {denials: 1, patience: 2 * s, deadline: 3 * s, took: s},
		"the client goes away": {denials: 2, patience: 2 * s, cancel: s / 3, took: s / 3,
			want: context.Canceled},
		"the client goes later": {denials: 1, patience: 2 * s, cancel: 3 * s, took: s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limited := limiter(t, nil, config(hybrid.Every(time.Second)))
				l := rpclimit.New(limited, user, rpclimit.Wait(row.patience))
				testkit.NoErr(t, l.Limit(ann.context()))
				ctx, cancel := context.WithCancel(ann.context())
				defer cancel()
				if row.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
					defer cancel()
				}
				if row.cancel > 0 {
					time.AfterFunc(row.cancel, cancel)
				}
				from := time.Now()
				err := l.Limit(ctx)
				testkit.Check(t, errors.Is(err, row.want), "%v, want %v", err, row.want)
				testkit.Check(t, row.want != nil || err == nil, "%v, want it admitted", err)
				took := time.Since(from)
				testkit.Check(t, took == row.took, "it took %v, want %v", took, row.took)
				stats := limited.Stats()
				testkit.Check(t, stats.Waiting == 0 && stats.Denied == row.denials,
					"%d wait, %d denials", stats.Waiting, stats.Denied)
			})
		})
	}
}

// A Limiter needs a key: there is no default.
func TestALimiterWantsAKey(t *testing.T) {
	for _, make := range []func(){
		func() { rpclimit.New(nil, user) },
		func() { rpclimit.New(limiter(t, nil, perMinute(1)), nil) },
		func() { rpclimit.Also(nil, user) },
		func() { rpclimit.Also(limiter(t, nil, perMinute(1)), nil) },
	} {
		func() {
			defer func() { testkit.Check(t, recover() != nil, "a limiter without a limit or a key was made") }()
			make()
		}()
	}
}

// FirstOf and Combine make keys as those of httplimit do.
func TestFirstOfAndCombine(t *testing.T) {
	wrong := func(context.Context) (string, error) { return "", errors.New("wrong") }
	none := func(context.Context) (string, error) { return "", rpclimit.ErrNoKey }
	for want, key := range map[string]rpclimit.KeyFunc{
		"0:ann":         rpclimit.FirstOf(user, tenant),
		"1:acme":        rpclimit.FirstOf(none, tenant),
		"":              rpclimit.FirstOf(wrong, tenant),
		"3:ann,4:acme,": rpclimit.Combine(user, tenant),
	} {
		got, err := key(ann.context())
		testkit.Check(t, got == want && (err == nil) == (want != ""), "%q, %v, want %q", got, err, want)
	}
	_, err := rpclimit.Combine(user, tenant)(call{user: "ann"}.context())
	testkit.Check(t, errors.Is(err, rpclimit.ErrNoKey), "%v", err)
}
