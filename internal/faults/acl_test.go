package faults

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// user is the line of docs/operations.md, behind "ACL SETUSER yuzhi". EVALSHA runs the scripts and
// EVAL brings them to a server that does not know them; the rest is what they call. go-redis asks
// for more when it connects (HELLO, CLIENT SETINFO), and does without where that is refused.
const user = "on >secret ~yuzhi:* +evalsha +eval +time +get +set"

func setUser(t *testing.T, admin *redis.Client, rules []string) {
	t.Helper()
	redistest.RequireVersion(t, 6, "ACL")
	args := []any{"ACL", "SETUSER", "yuzhi", "reset"}
	for _, r := range rules {
		args = append(args, r)
	}
	do(t, admin, args...)
}

func asUser(o *redis.Options) { o.Username, o.Password = "yuzhi", "secret" }

// clientAs is a client whose options as has changed.
func clientAs(server *redistest.Server, as func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: server.Addr, MaxRetries: -1}
	if as != nil {
		as(o)
	}
	return redis.NewClient(o)
}

// works reports whether a new limiter of that user is served: a bucket begins, goes on, and
// survives that the server forgets the scripts.
func works(t *testing.T, server *redistest.Server, admin *redis.Client) bool {
	t.Helper()
	do(t, admin, "FLUSHALL")
	f := NewFleet(t, Options{Size: 1, Addr: server.Addr, Config: patient(hourly, denying), Client: asUser})
	for range 3 {
		do(t, admin, "SCRIPT", "FLUSH")
		for range 2 {
			r, err := f.Limiters[0].Take(t.Context(), key, 1)
			if err != nil || r.Source == hybrid.SourceFallback {
				return false
			}
			if !r.OK {
				t.Fatalf("denied by the store: %+v", r)
			}
		}
	}
	return true
}

func TestTheLeastPrivilegesSufficeAndEachIsNeeded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := client(t, server.Addr)
	rules := strings.Fields(user)
	// Given the permissions of docs/operations.md, a limiter works,
	setUser(t, admin, rules)
	if !works(t, server, admin) {
		t.Fatal("it does not work")
	}
	// and its limits can be set, inspected and reset;
	store := storeOn(t, clientAs(server, asUser))
	for _, op := range []lease.Op{lease.OpSet, lease.OpSetIfAbsent, lease.OpInspect, lease.OpReset} {
		c := patient(hourly, denying).Policy.ConfigFor(patient(hourly, denying).Limits, 0, 0)
		if st, err := store.Configure(t.Context(), key, op, c); err != nil || !st.Exists {
			t.Errorf("%v: %+v, %v", op, st, err)
		}
	}
	// when any one of them is missing, it does not.
	for i, rule := range rules {
		if !strings.HasPrefix(rule, "+") {
			continue
		}
		setUser(t, admin, slices.Delete(slices.Clone(rules), i, i+1))
		if works(t, server, admin) {
			t.Errorf("%s is not needed", rule)
		}
		// and the error says that somebody must act.
		if err := direct(store, "unused"); !errors.Is(err, lease.ErrPermanent) {
			t.Errorf("without %s: %v", rule, err)
		}
	}
	// Nor does it need the default user, who may be switched off.
	setUser(t, admin, rules)
	setOff := client(t, server.Addr)
	do(t, setOff, "ACL", "SETUSER", "default", "off")
	defer do(t, setOff, "ACL", "SETUSER", "default", "on")
	f := NewFleet(t, Options{Size: 1, Addr: server.Addr, Config: patient(hourly, denying), Client: asUser})
	if r, err := f.Limiters[0].Take(t.Context(), "without default", 1); err != nil || !r.OK ||
		r.Source != hybrid.SourceStore {
		t.Errorf("without the default user: %+v, %v", r, err)
	}
}

func TestANameAndADatabaseNeedOnePermissionEach(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := client(t, server.Addr)
	named := func(o *redis.Options) { asUser(o); o.ClientName = "payments" }
	numbered := func(o *redis.Options) { asUser(o); o.DB = 3 }
	both := func(o *redis.Options) { named(o); numbered(o) }
	for _, c := range []struct {
		name  string
		as    func(*redis.Options)
		rules string
		ok    bool
	}{
		// Given a client that asks for a name or for a database, when the user may not, then it is
		// refused for good;
		{"a name, not allowed", named, "", false},
		{"a name, only databases allowed", named, "+select", false},
		{"a database, not allowed", numbered, "", false},
		{"a database, only names allowed", numbered, "+client|setname", false},
		// and when it may, it is served.
		{"a name", named, "+client|setname", true},
		{"a database", numbered, "+select", true},
		{"both", both, "+client|setname +select", true},
	} {
		setUser(t, admin, strings.Fields(user+" "+c.rules))
		err := direct(storeOn(t, clientAs(server, c.as)), "k")
		if c.ok && err != nil || !c.ok && !errors.Is(err, lease.ErrPermanent) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestScriptsLoadedByAnOperatorNeedNoEval: then a stolen password runs these two scripts on these
// keys, and nothing else.
func TestScriptsLoadedByAnOperatorNeedNoEval(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := client(t, server.Addr)
	setUser(t, admin, strings.Fields(strings.Replace(user, "+eval ", "", 1)))
	rdb := clientAs(server, asUser)
	store := storeOn(t, rdb)
	// Given a user without EVAL, and a server that does not know the scripts, then the error names
	// what is missing;
	if err := direct(store, "k"); !errors.Is(err, lease.ErrPermanent) ||
		!strings.Contains(err.Error(), "eval") {
		t.Errorf("%v", err)
	}
	// and when an operator has loaded them,
	for _, source := range redisbucket.Scripts() {
		do(t, admin, "SCRIPT", "LOAD", source)
	}
	// then everything works,
	if err := store.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := direct(store, "k"); err != nil {
		t.Error(err)
	}
	if st, err := store.Inspect(t.Context(), "k"); err != nil || !st.Exists {
		t.Errorf("%+v, %v", st, err)
	}
	// and the user brings no script of its own.
	if err := rdb.Eval(t.Context(), "return 1", nil).Err(); err == nil {
		t.Error("EVAL was executed")
	}
	if err := rdb.ScriptLoad(t.Context(), "return 1").Err(); err == nil {
		t.Error("SCRIPT LOAD was executed")
	}
}

// TestWhatEvalAllowsWhoeverStealsThePassword is why there is a way without it.
func TestWhatEvalAllowsWhoeverStealsThePassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--lua-time-limit", "10")
	admin := client(t, server.Addr)
	setUser(t, admin, strings.Fields(user))
	thief := clientAs(server, asUser)
	defer thief.Close()
	// When a script has written and loops,
	go thief.Eval(context.Background(), "redis.call('SET', KEYS[1], 'x') while true do end",
		[]string{"yuzhi:{k}"})
	// then no operator can end it but with the whole server.
	testkit.Eventually(t, "a script that cannot be killed", func() bool {
		return redis.HasErrorPrefix(admin.ScriptKill(t.Context()).Err(), "UNKILLABLE")
	})
	_ = admin.ShutdownNoSave(t.Context()).Err()
	testkit.Eventually(t, "the end of the server",
		func() bool { return admin.Ping(t.Context()).Err() != nil })
}

func TestRow26TheUserReachesNothingElse(t *testing.T) {
	t.Parallel()
	// Given that user, and data of others,
	server := redistest.Start(t)
	admin := client(t, server.Addr)
	setUser(t, admin, strings.Fields(user))
	do(t, admin, "SET", "others", "data")
	rdb := clientAs(server, asUser)
	store, err := redisbucket.New(rdb, redisbucket.Config{Prefix: "others:"})
	must(t, err)
	storeOn(t, rdb) // closes it
	// when a store has another prefix, then its calls are refused, for good and by name,
	err = direct(store, "the key")
	if !errors.Is(err, lease.ErrPermanent) || !errors.Is(err, lease.ErrUnavailable) ||
		!strings.Contains(err.Error(), `"the key"`) {
		t.Errorf("%v", err)
	}
	// and whoever steals the password neither reads nor destroys what is not ours.
	for _, args := range [][]any{{"GET", "others"}, {"SET", "others", "x"},
		{"EVAL", "return redis.call('GET', 'others')", 0},
		{"EVAL", "return redis.call('GET', KEYS[1])", 1, "others"}, {"FLUSHALL"}, {"SCRIPT", "FLUSH"},
		{"KEYS", "*"}, {"CONFIG", "GET", "*"},
		{"DEL", "yuzhi:{k}"}, {"ACL", "LIST"}, {"PUBLISH", "c", "m"}} {
		if err := rdb.Do(t.Context(), args...).Err(); err == nil {
			t.Errorf("%v was executed", args)
		}
	}
	if v, err := admin.Get(t.Context(), "others").Result(); err != nil || v != "data" {
		t.Errorf("%q, %v", v, err)
	}
}

// TestRow26RefusedUsersAreTypedAndCauseNoStorm: what no retry cures is asked at the pace of a
// probe.
func TestRow26RefusedUsersAreTypedAndCauseNoStorm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		rules string // of the user; none: a password is required
		as    func(*redis.Options)
		code  string
	}{
		{"NOPERM", "on >secret ~yuzhi:*", asUser, "NOPERM"},
		{"another prefix", strings.Replace(user, "~yuzhi:*", "~other:*", 1), asUser, "NOPERM"},
		{"NOAUTH", "", nil, "NOAUTH"},
		{"wrong password", "on >other ~yuzhi:*", asUser, "WRONGPASS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// Given a server that refuses the limiter's user,
			server := redistest.Start(t)
			admin := client(t, server.Addr)
			do(t, admin, "PING")
			if c.rules == "" {
				set(t, admin, "requirepass", "secret")
			} else {
				setUser(t, admin, strings.Fields(c.rules))
			}
			err := direct(storeOn(t, clientAs(server, c.as)), "the key")
			// then the error is typed, says why, and says that retries are of no use;
			for _, want := range []error{lease.ErrUnavailable, lease.ErrRefused, lease.ErrPermanent} {
				if !errors.Is(err, want) {
					t.Errorf("%v is not %v", err, want)
				}
			}
			if !strings.Contains(err.Error(), c.code) || !strings.Contains(err.Error(), `"the key"`) {
				t.Errorf("%v", err)
			}
			// and when thousands of requests come,
			f := NewFleet(t, Options{Size: 1, Addr: server.Addr, Client: c.as,
				Config: hybrid.Config{Limits: []hybrid.Limit{busy}, Policy: denying}})
			f.Load(key, 10_000)
			testkit.Eventually(t, "requests", func() bool { return f.Seen(key, 0, f.Now()).Denied >= 5000 })
			s, took := f.Stats(), f.Now()
			// then each is denied at once, and the server hears of few of them.
			if s.Admitted != 0 {
				t.Errorf("%d admitted", s.Admitted)
			}
			if most := 10 + int64(took/(20*time.Millisecond)); s.Calls > most {
				t.Errorf("%d calls in %v, at most %d were to be expected", s.Calls, took, most)
			}
			t.Logf("%v; %d calls for %d requests in %v", err, s.Calls, f.Seen(key, 0, f.Now()).Denied, took)
		})
	}
}

func TestAClusterNeedsOnePermissionMore(t *testing.T) {
	t.Parallel()
	// Given a cluster, and the user of a single server,
	server := redistest.StartCluster(t, 1, false).Masters[0]
	admin := client(t, server.Addr)
	call := func(rules string) error {
		setUser(t, admin, strings.Fields(rules))
		o := &redis.ClusterOptions{Addrs: []string{server.Addr}, Username: "yuzhi", Password: "secret"}
		return direct(storeOn(t, redis.NewClusterClient(o)), "k")
	}
	// then the client does not learn who serves which slots, and the error says so;
	if err := call(user); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("%v", err)
	}
	// with one permission more it does.
	if err := call(user + " +cluster|slots"); err != nil {
		t.Errorf("%v", err)
	}
}
