package faults

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

const (
	size    = 3   // processes in a fleet
	perEach = 500 // requests per second and process: three times the limit in all
	// callTimeout leaves a slack machine time to answer.
	callTimeout = 250 * time.Millisecond
)

// limit is the fleets' shared limit.
var limit = hybrid.PerSecond(500)

// ordinary returns the fleets' configuration.
func ordinary(p hybrid.Policy) hybrid.Config {
	cfg := with(limit, p)
	cfg.CallTimeout = callTimeout
	return cfg
}

// outage is a way to take the store away from all processes at once.
type outage struct {
	inject, cure func()
	says         string // text in the error that every limiter must get
	is           error  // error that it must wrap
}

// mute is an outage with no other error than ErrUnavailable.
func mute(inject, cure func()) outage { return outage{inject, cure, "", lease.ErrUnavailable} }

// refusal is a server that answers every lease call with one error.
func refusal(code string, inject, cure func()) outage {
	return outage{inject, cure, ": " + code + " ", lease.ErrRefused}
}

// setting is a refusal while a parameter has the bad value.
func setting(code, parameter, bad, good string) func(*site) outage {
	return func(s *site) outage {
		return refusal(code, func() { s.set(parameter, bad) }, func() { s.set(parameter, good) })
	}
}

// replica turns the server into a replica of a missing master.
func replica(code string) func(*site) outage {
	return func(s *site) outage {
		return refusal(code, func() { s.do("REPLICAOF", "127.0.0.1", "1") },
			func() { s.do("REPLICAOF", "NO", "ONE") })
	}
}

// hang stops a server like a hanging process, and lets it go on.
func hang(s *site) outage {
	return mute(func() { s.Hang(s.t) }, func() { s.Resume(s.t) })
}

// injection is a way in which a store goes away from all processes at once, and comes back.
type injection struct {
	args []string // of the server
	how  func(*site) outage
}

var injections = map[string]injection{
	// The server writes everything to its file before it answers, so it forgets nothing when it is killed.
	"Row01 Redis is down": {[]string{"--appendonly", "yes", "--appendfsync", "no"}, func(s *site) outage {
		return mute(s.Kill, func() { s.Restart(s.t) })
	}},
	// It executes every probe that was sent meanwhile once it goes on.
	"Row03 a hung server": {nil, hang},
	// The network takes everything and answers nothing, and later serves new connections again. (It
	// keeps every connection that a probe was sent over until the client's read timeout, an hour
	// here: so the pool is larger than the number of probes.)
	"Row08 a black hole": {nil, func(s *site) outage {
		proxy := redistest.NewProxy(s.t, s.Addr)
		s.addr, s.client = proxy.Addr, func(o *redis.Options) { o.PoolSize = 1000 }
		return mute(func() { proxy.Set(redistest.Fate{BlackHole: true}) }, proxy.Pass)
	}},
	"Row10 an exhausted pool delays renewals and not requests": {nil, func(s *site) outage {
		s.client = func(o *redis.Options) { o.PoolSize = 1 }
		return hang(s)
	}},
	// The server has room for one client alone, and that is ours. It says so before any request, and
	// go-redis does not read that: the client only sees a broken pipe.
	"Row11 no more clients": {nil, func(s *site) outage {
		return mute(func() {
			s.set("maxclients", "1")
			s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		}, func() { s.set("maxclients", "10000") })
	}},
	"Row22 a replica":                  {nil, replica("READONLY")},
	"Row22 a replica without a master": {[]string{"--replica-serve-stale-data", "no"}, replica("MASTERDOWN")},
	"Row22 too few replicas":           {nil, setting("NOREPLICAS", "min-replicas-to-write", "1", "0")},
	"Row15 out of memory":              {nil, setting("OOM", "maxmemory", "1", "0")},
	// A directory in place of the dump: no save succeeds, not even root's.
	"Row22 a server that cannot save": {nil, func(s *site) outage {
		dump := filepath.Join(s.Dir, "dump.rdb")
		save := func(want string) {
			testkit.Eventually(s.t, "a save that ends with "+want, func() bool {
				s.ctl.BgSave(s.t.Context()) // an error where one is under way
				return strings.Contains(s.ctl.Info(s.t.Context(), "persistence").Val(),
					"rdb_last_bgsave_status:"+want)
			})
		}
		return refusal("MISCONF", func() {
			testkit.NoErr(s.t, os.Mkdir(dump, 0o755))
			s.set("save", "3600 1000000000")
			save("err")
		}, func() {
			testkit.NoErr(s.t, os.Remove(dump))
			save("ok")
		})
	}},
	// Ten thousand keys in the base of the append-only file, each of which takes ten milliseconds to
	// load: longer than any machine needs to see that.
	"Row22 a loading server": {[]string{"--appendonly", "yes", "--appendfsync", "no",
		"--loading-process-events-interval-bytes", "1024"}, func(s *site) outage {
		return refusal("LOADING", func() {
			s.do("EVAL", "for i = 1, 10000 do redis.call('SET', 'filler' .. i, string.rep('x', 100)) end return 1", 0)
			s.do("BGREWRITEAOF")
			s.awaitInfo("persistence", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0")
			s.RestartLoading(s.t, "--key-load-delay", "10000")
		}, func() { s.set("key-load-delay", "0") })
	}},
	"Row24 a busy server": {[]string{"--lua-time-limit", "1"}, func(s *site) outage {
		endless := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: -1, MaxRetries: -1})
		s.t.Cleanup(func() { endless.Close() })
		killed := make(chan error, 1)
		return refusal("BUSY", func() {
			go func() { killed <- endless.Eval(s.t.Context(), "while true do end", nil).Err() }()
			testkit.Eventually(s.t, "a busy server",
				func() bool { return redis.HasErrorPrefix(s.ctl.Ping(s.t.Context()).Err(), "BUSY") })
		}, func() {
			s.do("SCRIPT", "KILL")
			err := <-killed
			testkit.Check(s.t, err != nil && strings.Contains(err.Error(), "SCRIPT KILL"), "it ended with %v", err)
		})
	}},
	// The server holds back everything that may write, as before a failover.
	"Row24 a paused server": {nil, func(s *site) outage {
		return mute(func() { s.do("CLIENT", "PAUSE", time.Hour.Milliseconds(), "WRITE") },
			func() { s.do("CLIENT", "UNPAUSE") })
	}},
}

// mode is a fleet with one of the fallbacks. All modes share one outage, on one key each.
type mode struct {
	*fleet
	name     string
	fallback hybrid.Fallback
	load     *load

	began   time.Duration  // the outage, by fleet.now
	settled time.Duration  // the mode alone has decided a number of requests at every limiter
	before  []hybrid.Stats // of each limiter, at its beginning
	other   []hybrid.Stats // of each limiter, when it last decided by anything else
	served  hybrid.Stats   // of the fleet, at the end of the outage
}

// TestAnOutageIsGotThroughByPolicyFallback covers every row that takes the store away: it goes and comes back
// while fleets are under load. The test checks each mode's promises during and after the outage, and logs the
// decisions. (TestRow36TheRecoveryOfTwoHundredAtOnceIsNoStorm here and TestFallbacks in hybrid check that no
// request waits; TestProbesBackOff there checks the number of probes.)
func TestAnOutageIsGotThroughByPolicyFallback(t *testing.T) {
	each(t, oneOrAll(t, "Row01 Redis is down", injections), func(t *testing.T, c injection) {
		s := start(t, c.args...)
		undergo(s, c.how(s))
	})
}

func undergo(s *site, o outage) {
	t := s.t
	all := []*mode{
		{name: "Deny", fallback: hybrid.FallbackDeny},
		{name: "LocalShare", fallback: hybrid.FallbackLocalShare},
		{name: "AllowAll", fallback: hybrid.FallbackAllowAll},
	}
	// each waits until cond was true once for every mode.
	each := func(what string, cond func(*mode) bool) {
		t.Helper()
		left := slices.Clone(all)
		testkit.Eventually(t, what, func() bool {
			left = slices.DeleteFunc(left, cond)
			return len(left) == 0
		})
	}
	// given that every limiter holds a lease and knows of the others
	for _, m := range all {
		m.fleet = s.fleet(size, ordinary(hybrid.Policy{Fallback: m.fallback, StrictExpiry: true}))
		m.load = m.fleet.load(m.name, perEach)
	}
	each("everybody knows of everybody", func(m *mode) bool {
		return !slices.ContainsFunc(m.taps, func(tap *tap) bool { return tap.counts().active != size })
	})
	for _, m := range all {
		for _, tap := range m.taps {
			tap.forget()
		}
		m.began, m.before = m.now(), m.each()
		m.other = slices.Clone(m.before)
	}
	// when the store goes away
	o.inject()
	each("the mode decides", (*mode).decides)
	// and stays away until every limiter has heard why
	each("an error that says why", func(m *mode) bool {
		return !slices.ContainsFunc(m.taps, func(tap *tap) bool { return !tap.heardOf(o.is, o.says) })
	})
	for _, m := range all {
		m.checkOutage()
	}
	o.cure()
	// then the store serves every fleet again
	each("tokens from the store", func(m *mode) bool {
		s := m.stats()
		return s.Leased >= m.served.Leased+limit.Tokens &&
			s.Admitted-s.Fallback >= m.served.Admitted-m.served.Fallback+limit.Tokens
	})
	for _, m := range all {
		m.load.stop()
		m.checkAfter()
	}
}

// decides reports whether the holdings are spent and the mode alone decides: every limiter knows
// that the store is away, and has answered a number of requests in a row as the mode says, none
// with a token of the store. (Stats.Held may stay above zero: what was drawn for a request that has
// gone is kept for the way back.) That a call has failed is not enough: on a slow machine one fails
// before the outage, and its late answer ends that again.
func (m *mode) decides() bool {
	const inARow = 300
	all := true
	for i, s := range m.each() {
		last := &m.other[i]
		denied, admitted := s.Denied-last.Denied, s.Admitted-last.Admitted
		if s.Degraded == 0 || s.Errors == m.before[i].Errors ||
			admitted != s.Fallback-last.Fallback ||
			m.fallback == hybrid.FallbackDeny && admitted > 0 || m.fallback == hybrid.FallbackAllowAll && denied > 0 {
			*last, denied, admitted = s, 0, 0
		}
		all = all && denied+admitted >= inARow && (m.fallback == hybrid.FallbackDeny || admitted > 0)
	}
	m.settled = m.now()
	return all
}

// each returns the Stats of every limiter.
func (m *mode) each() []hybrid.Stats {
	all := make([]hybrid.Stats, len(m.limiters))
	for i, l := range m.limiters {
		all[i] = l.Stats()
	}
	return all
}

// checkOutage runs at the end of the outage, before the store is back.
func (m *mode) checkOutage() {
	m.t.Helper()
	fallback := int64(0)
	for i, s := range m.each() {
		fallback += s.Fallback - m.before[i].Fallback
	}
	now := m.now()
	m.checkAnswered(m.name, m.began, now)
	first, seen := m.seen(m.name, m.began, m.settled), m.seen(m.name, m.settled, now)
	m.t.Logf("%s: until it decides (%v): %v; then in %v: %v, %d took 1 ms or more; %d by fallback, %d calls",
		m.name, (m.settled - m.began).Round(time.Millisecond), first, (now - m.settled).Round(time.Millisecond),
		seen, seen.slow, fallback, m.heard().sent)
	switch m.fallback {
	case hybrid.FallbackDeny:
		testkit.Check(m.t, fallback == 0, "Deny admitted %d without tokens", fallback)
	case hybrid.FallbackLocalShare:
		bound := m.localShares(limit, now-m.began)
		testkit.Check(m.t, float64(fallback) <= bound, "LocalShare: %d of %.0f", fallback, bound)
	}
	m.served = m.stats()
}

// localShares returns the bound of LocalShare over d: each process has its share of rate and burst,
// by the last active weight that it got.
func (f *fleet) localShares(l hybrid.Limit, d time.Duration) (bound float64) {
	for _, tap := range f.taps {
		bound += (l.Rate()*d.Seconds() + float64(l.Capacity())) / float64(tap.counts().least)
	}
	return bound
}

// checkAfter runs when the load has ended. The admissions by leases keep (1) by themselves.
func (m *mode) checkAfter() {
	m.t.Helper()
	over, fallback := m.excess(m.name, limit), m.stats().Fallback
	testkit.Check(m.t, over <= fallback, "%s: %d too many, only %d by fallback", m.name, over, fallback)
	if m.fallback == hybrid.FallbackDeny {
		m.checkBound(m.name, limit, 0)
		testkit.Check(m.t, fallback == 0, "Deny admitted %d without tokens", fallback)
	}
}
