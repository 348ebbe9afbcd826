package faults

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestRow02DownAtStartColdStartDecides(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cold hybrid.ColdStart
		want bool
	}{"Deny": {hybrid.ColdStartDeny, false}, "Allow": {hybrid.ColdStartAllow, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// given a server that is down
			server := redistest.Start(t)
			server.Kill()
			// when a fleet is started and asked
			cfg := ordinary(strict)
			cfg.Policy.ColdStart = c.cold
			f := NewFleet(t, Options{Size: size, Addr: server.Addr, Config: cfg})
			if started := f.Now(); started > slack {
				t.Errorf("New took %v", started)
			}
			for _, l := range f.Limiters {
				k := l.Key(key)
				for verb, allow := range map[string]func() bool{"Allow": k.Allow, "TryAllow": k.TryAllow} {
					if got := f.Ask(key, allow); got != c.want {
						t.Errorf("%s is %v, want %v", verb, got, c.want)
					}
				}
			}
			// then nobody waits for the client, whatever number of requests comes
			load := f.Load(key, perEach)
			seen := f.Next(key, 1000)
			t.Log(seen)
			if c.want && seen.Denied > 0 || !c.want && seen.Admitted > 0 {
				t.Error(seen)
			}
			// and when the server comes, the fleet reaches its rate
			server.Restart(t)
			took := f.CheckRecovers(key, limit.Tokens)
			t.Logf("%d/s %v after the server", limit.Tokens, took.After)
			load.Stop()
			f.CheckNobodyWaited(key, 0, f.Now())
			if !c.want {
				f.CheckBound(key, limit, 0)
			}
		})
	}
}

func TestRow09AnotherProgramOnThatPortIsAnOutage(t *testing.T) {
	t.Parallel()
	// given an HTTP server where Redis should be
	stub := httptest.NewServer(http.NotFoundHandler())
	defer stub.Close()
	var heard ears
	f := NewFleet(t, Options{Size: size, Addr: stub.Listener.Addr().String(), Store: heard.put,
		Config: ordinary(strict)})
	// when it is asked
	load := f.Load(key, perEach)
	testkit.Eventually(t, "1000 requests, and an error", func() bool {
		_, failed, _ := heard.sum()
		return f.Seen(key, 0, f.Now()).Denied >= 1000 && failed > 0
	})
	load.Stop()
	// then everybody is denied, nobody waits, and the error has a type
	if st := f.Stats(); st.Admitted > 0 || st.Leased > 0 {
		t.Errorf("%+v", st)
	}
	f.CheckNobodyWaited(key, 0, f.Now())
	if _, _, err := heard.sum(); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
