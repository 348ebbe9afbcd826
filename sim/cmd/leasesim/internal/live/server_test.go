package live

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestAddressesAreOfOneServerAClusterOrSentinels(t *testing.T) {
	for address, want := range map[string]string{
		"localhost:6379":                         "one localhost:6379 //0 plain",
		"redis://me:secret@h:1/3":                "one h:1 me/secret/3 plain",
		"rediss://:secret@h:1":                   "one h:1 /secret/0 TLS",
		"redis+cluster://me:secret@h:1?addr=i:2": "cluster [h:1 i:2] me/secret plain",
		"rediss+cluster://h:1":                   "cluster [h:1] / TLS",
		"redis+sentinel://h:1/4?master_name=m":   "one FailoverClient //4 plain",
		"rediss+sentinel://h:1?master_name=m":    "one FailoverClient //0 TLS",
		"redis+sentinel://h:1":                   "needs the name of the master",
		"http://h:1":                             "scheme",
		"redis+ring://h:1":                       `the scheme is "redis+ring"`,
		"localhost":                              "neither host:port nor a URL",
		"redis://h:1?unknown=1":                  "unknown",
		"redis://me:secret@h:port":               "invalid port",
	} {
		got := ""
		rdb, err := newClient(address)
		over := map[bool]string{true: "TLS", false: "plain"}
		switch c := rdb.(type) {
		case *redis.Client:
			o := c.Options()
			got = fmt.Sprintf("one %s %s/%s/%d %s", o.Addr, o.Username, o.Password, o.DB, over[o.TLSConfig != nil])
		case *redis.ClusterClient:
			o := c.Options()
			got = fmt.Sprintf("cluster %v %s/%s %s", o.Addrs, o.Username, o.Password, over[o.TLSConfig != nil])
		}
		if err != nil {
			got = err.Error()
		} else {
			rdb.Close()
		}
		testkit.Check(t, got == want || err != nil && strings.Contains(got, want),
			"%s: %s, want %s", address, got, want)
		testkit.Check(t, err == nil || !strings.Contains(got, "secret"),
			"%s: the error says the password: %s", address, got)
	}
	// A bad address is bad usage, found before anything is started, and nothing that is shown holds
	// a password.
	_, _, err := Dial("redis+sentinel://h:1")
	testkit.Check(t, errors.Is(err, ErrUsage) && strings.Contains(err.Error(), "--redis: "), "%v", err)
	_, name, err := Dial("redis://me:secret@h:1")
	testkit.Check(t, err == nil && !strings.Contains(name, "secret") && strings.Contains(name, "h:1"), "%s", name)
}

func TestAUserWithNoMorePermissionsThanThePagesListWillDo(t *testing.T) {
	redistest.RequireVersion(t, 6, "ACL")
	server := redistest.Start(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer admin.Close()
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "yuzhi", "on", ">secret", "~yuzhi:*", "+evalsha", "+eval",
		"+time", "+get", "+set").Err(); err != nil {
		t.Fatal(err)
	}
	s, err := connect(t.Context(), "redis://yuzhi:secret@"+server.Addr)
	testkit.NoErr(t, err)
	s.stop()
	if strings.Contains(s.name, "secret") {
		t.Error(s.name)
	}
	// A refusal is an error.
	if _, err := connect(t.Context(), "redis://yuzhi:wrong@"+server.Addr); err == nil ||
		!strings.Contains(err.Error(), "WRONGPASS") {
		t.Error(err)
	}
}

func TestOnlyLeaseCallsAreTakenForTheServersTime(t *testing.T) {
	s, err := connect(t.Context(), redistest.Start(t).Addr)
	testkit.NoErr(t, err)
	defer s.stop()
	rdb, err := newClient(s.addr)
	testkit.NoErr(t, err)
	defer rdb.Close()
	// Given a server that has executed a script by its source three times, then it has served no
	// lease call;
	first, _ := s.served(t.Context()) // what it took to see whether it answers
	const spin = "for i = 1, 100000 do end"
	for range 3 {
		if err := rdb.Eval(t.Context(), spin, nil).Err(); err != nil && err.Error() != "redis: nil" {
			t.Fatal(err)
		}
	}
	before, _ := s.served(t.Context())
	testkit.Check(t, before.calls == first.calls && before.time == first.time, "%+v", before)
	// and when it executes one by its digest five times, five, of some length.
	sha, err := rdb.ScriptLoad(t.Context(), spin).Result()
	testkit.NoErr(t, err)
	for range 5 {
		if err := rdb.EvalSha(t.Context(), sha, nil).Err(); err != nil && err.Error() != "redis: nil" {
			t.Fatal(err)
		}
	}
	after, _ := s.served(t.Context())
	if after.calls != before.calls+5 || after.time <= before.time ||
		after.since(before) != (after.time-before.time)/5 {
		t.Errorf("%+v", after)
	}
}

func TestTheEmbeddedRedisTellsClientsAndScriptsTheTimeOfDay(t *testing.T) {
	testkit.RequireMiniredis(t)
	s, err := connect(t.Context(), "")
	testkit.NoErr(t, err)
	defer s.stop()
	got, _ := s.served(t.Context()) // it does not say
	testkit.Check(t, s.name == "embedded (miniredis)" && got == (served{}), "%s: %+v", s.name, got)
	script := redis.NewScript("local t = redis.call('TIME') return t[1] .. ' ' .. t[2]")
	for _, ask := range []func() (time.Time, error){
		func() (time.Time, error) { return s.rdb.Time(t.Context()).Result() },
		func() (time.Time, error) {
			var seconds, micros int64
			text, err := script.Run(t.Context(), s.rdb, nil).Text()
			_, _ = fmt.Sscan(text, &seconds, &micros)
			return time.UnixMicro(seconds*1e6 + micros), err
		},
	} {
		before := wallClock().Truncate(time.Microsecond)
		at, err := ask()
		testkit.NoErr(t, err)
		testkit.Check(t, !at.Before(before) && !at.After(wallClock()), "%v is not %v or a little later", at, before)
	}
}
