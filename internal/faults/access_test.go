package faults

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// user is the line of docs/operations.md, behind "ACL SETUSER yuzhi". EVALSHA runs the scripts and
// EVAL brings them to a server that does not know them; the scripts call the rest. go-redis tries
// more commands when it connects (HELLO, CLIENT SETINFO), and works without them.
const user = "on >secret ~yuzhi:* +evalsha +eval +time +get +set"

func asUser(o *redis.Options) { o.Username, o.Password = "yuzhi", "secret" }

// startWithUser starts a server whose limiters log in as a user with these rules.
func startWithUser(t *testing.T, rules string, args ...string) *site {
	t.Helper()
	redistest.RequireVersion(t, 6, "ACL")
	s := start(t, args...)
	s.client = asUser
	s.setUser(rules)
	return s
}

func (s *site) setUser(rules string) {
	s.t.Helper()
	args := []any{"ACL", "SETUSER", "yuzhi", "reset"}
	for r := range strings.FieldsSeq(rules) {
		args = append(args, r)
	}
	s.do(args...)
}

// clientAs returns a client whose options are changed by as; nil changes nothing.
func (s *site) clientAs(as func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: s.Addr, MaxRetries: -1,
		DialTimeout: operatorTimeout, ReadTimeout: operatorTimeout, PoolTimeout: operatorTimeout}
	if as != nil {
		as(o)
	}
	return redis.NewClient(o)
}

// checkPermanent fails the test unless err is permanent and contains every text in says.
func checkPermanent(t *testing.T, what string, err error, says ...string) {
	t.Helper()
	for _, is := range []error{lease.ErrUnavailable, lease.ErrPermanent} {
		testkit.Check(t, errors.Is(err, is), "%s: %v is not %v", what, err, is)
	}
	for _, text := range says {
		testkit.Check(t, err != nil && strings.Contains(err.Error(), text), "%s: no %s in %v", what, text, err)
	}
}

// works reports whether a new limiter of that user is served: a bucket begins, goes on, and
// survives the loss of the scripts.
func (s *site) works() bool {
	s.t.Helper()
	s.do("FLUSHALL")
	f := s.fleet(1, patient(hourly, denying))
	for range 3 {
		s.do("SCRIPT", "FLUSH")
		for range 2 {
			r, err := f.limiters[0].Take(s.t.Context(), key, 1)
			if err != nil || r.Source == hybrid.SourceFallback {
				return false
			}
			testkit.Must(s.t, r.OK, "denied by the store: %+v", r)
		}
	}
	return true
}

func TestTheLeastPrivilegesSufficeAndEachIsNeeded(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	ctx := t.Context()
	// Given the permissions of docs/operations.md, a limiter works,
	server := startWithUser(t, user)
	testkit.Must(t, server.works(), "it does not work")
	// and its limits can be set, inspected and reset;
	store, cfg := storeOn(t, server.clientAs(asUser)), patient(hourly, denying)
	for _, op := range []lease.Op{lease.OpSet, lease.OpInspect, lease.OpReset} {
		st, err := store.Configure(ctx, key, op, cfg.Policy.ConfigFor(cfg.Limits, 0, 0))
		testkit.Check(t, err == nil && st.Exists, "%v: %+v, %v", op, st, err)
	}
	// when any one of them is missing, it does not, and the error is permanent.
	rules := strings.Fields(user)
	for i, rule := range rules {
		if strings.HasPrefix(rule, "+") {
			server.setUser(strings.Join(slices.Delete(slices.Clone(rules), i, i+1), " "))
			testkit.Check(t, !server.works(), "%s is not needed", rule)
			checkPermanent(t, "without "+rule, call(ctx, store, "unused"))
		}
	}
	// The default user is not needed, and may be switched off.
	server.setUser(user)
	f := server.fleet(1, cfg)
	server.do("ACL", "SETUSER", "default", "off")
	defer server.do("ACL", "SETUSER", "default", "on")
	r, err := f.limiters[0].Take(ctx, "without default", 1)
	testkit.Check(t, err == nil && r.OK && r.Source == hybrid.SourceStore, "without default: %+v, %v", r, err)
}

func TestANameADatabaseAndAClusterNeedOnePermissionEach(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	server := startWithUser(t, user)
	cluster := siteOf(t, redistest.StartCluster(t, 1, false).Masters[0])
	for _, c := range []struct {
		name   string
		server *site
		client func() redis.UniversalClient
		needs  string
	}{
		{"a name", server, func() redis.UniversalClient {
			return server.clientAs(func(o *redis.Options) { asUser(o); o.ClientName = "payments" })
		}, "+client|setname"},
		{"a database", server, func() redis.UniversalClient {
			return server.clientAs(func(o *redis.Options) { asUser(o); o.DB = 3 })
		}, "+select"},
		{"a cluster", cluster, func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{cluster.Addr}, Username: "yuzhi",
				Password: "secret", DialTimeout: operatorTimeout, ReadTimeout: operatorTimeout})
		}, "+cluster|slots"},
	} {
		// Given a client that asks for more than a lease, when its user may not, then the error says so;
		c.server.setUser(user)
		err := call(t.Context(), storeOn(t, c.client()), key)
		said := err != nil && strings.Contains(err.Error(), "NOPERM")
		testkit.Check(t, said && errors.Is(err, lease.ErrUnavailable), "%s: %v", c.name, err)
		permanent := errors.Is(err, lease.ErrPermanent)
		testkit.Check(t, permanent || c.server == cluster, "%s: %v is retried", c.name, err)
		// and when it may, it is served.
		c.server.setUser(user + " " + c.needs)
		err = call(t.Context(), storeOn(t, c.client()), key)
		testkit.Check(t, err == nil, "%s: %v", c.name, err)
	}
}

// TestScriptsLoadedByAnOperatorNeedNoEval: then a stolen password runs these two scripts on these
// keys, and nothing else.
func TestScriptsLoadedByAnOperatorNeedNoEval(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	ctx := t.Context()
	server := startWithUser(t, strings.Replace(user, "+eval ", "", 1))
	rdb := server.clientAs(asUser)
	store := storeOn(t, rdb)
	// Given a user without EVAL, and a server that does not know the scripts, then the error names
	// what is missing;
	checkPermanent(t, "without EVAL", call(ctx, store, key), "eval")
	// and when an operator has loaded them,
	for _, source := range redisbucket.Scripts() {
		server.do("SCRIPT", "LOAD", source)
	}
	// then everything works,
	testkit.NoErr(t, store.Ping(ctx))
	testkit.NoErr(t, call(ctx, store, key))
	st, err := store.Inspect(ctx, key)
	testkit.Check(t, err == nil && st.Exists, "%+v, %v", st, err)
	// and the user brings no script of its own.
	testkit.Check(t, rdb.Eval(ctx, "return 1", nil).Err() != nil, "EVAL was executed")
	testkit.Check(t, rdb.ScriptLoad(ctx, "return 1").Err() != nil, "SCRIPT LOAD was executed")
}

func TestRow26TheUserReachesNothingElse(t *testing.T) {
	t.Parallel()
	// Given that user, and data of others,
	server := startWithUser(t, user)
	server.do("SET", "others", "data")
	rdb := server.clientAs(asUser)
	defer rdb.Close()
	store, err := redisbucket.New(rdb, redisbucket.Config{Prefix: "others:"})
	testkit.NoErr(t, err)
	// when a store has another prefix, then its calls are refused, for good and by name,
	checkPermanent(t, "another prefix", call(t.Context(), store, "the key"), `"the key"`)
	// and a stolen password neither reads nor destroys other data.
	for _, args := range [][]any{{"SET", "others", "x"}, {"EVAL", "return redis.call('GET', 'others')", 0},
		{"FLUSHALL"}, {"SCRIPT", "FLUSH"}, {"KEYS", "*"}, {"CONFIG", "GET", "*"}, {"DEL", bucketOf(key)}} {
		testkit.Check(t, rdb.Do(t.Context(), args...).Err() != nil, "%v was executed", args)
	}
	testkit.Check(t, server.do("GET", "others") == "data", "the data of others is gone")
}
