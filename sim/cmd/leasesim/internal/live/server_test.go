package live

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
)

func TestOnlyLeaseCallsAreTakenForTheServersTime(t *testing.T) {
	s, err := connect(t.Context(), redistest.Start(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	rdb, err := newClient(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	// Given a server that has executed a script by its source three times, then it has served no
	// lease call;
	first := s.served(t.Context()) // what it took to see whether it answers
	const spin = "for i = 1, 100000 do end"
	for range 3 {
		if err := rdb.Eval(t.Context(), spin, nil).Err(); err != nil && err.Error() != "redis: nil" {
			t.Fatal(err)
		}
	}
	before := s.served(t.Context())
	if before != first {
		t.Errorf("%+v", before)
	}
	// and when it executes one by its digest five times, five, of some length.
	sha, err := rdb.ScriptLoad(t.Context(), spin).Result()
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := rdb.EvalSha(t.Context(), sha, nil).Err(); err != nil && err.Error() != "redis: nil" {
			t.Fatal(err)
		}
	}
	after := s.served(t.Context())
	if after.calls != before.calls+5 || after.time <= before.time || after.since(before) != (after.time-before.time)/5 {
		t.Errorf("%+v", after)
	}
	// Where nothing has happened since, there is no mean.
	if got := after.since(after); got != 0 {
		t.Error(got)
	}
	if got := (served{9, time.Second}).since(served{4, 0}); got != 200*time.Millisecond {
		t.Error(got)
	}
}

func TestTheEmbeddedRedisDoesNotSayItsTime(t *testing.T) {
	s, err := connect(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	if got := s.served(t.Context()); s.name != "embedded (miniredis)" || got != (served{}) {
		t.Errorf("%s: %+v", s.name, got)
	}
}
