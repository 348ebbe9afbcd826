package faults

import (
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestRow01RedisDownSpendsTheHoldingThenTheFallback(t *testing.T) {
	t.Parallel()
	// given a server that writes everything to its file before it answers, so that it forgets nothing when it is killed (one
	// that does is another row), and fleets under load
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "no")
	all := newModes(t, server.Addr, "", nil)
	// when it is killed and started again
	all.suffer(t, outage{inject: server.Kill, cure: func() { server.Restart(t) }})
}

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
			f := NewFleet(t, Options{Size: size, Addr: server.Addr, Config: hybrid.Config{
				Limits: []hybrid.Limit{limit}, Policy: hybrid.Policy{ColdStart: c.cold, Fallback: hybrid.FallbackDeny, StrictExpiry: true}, CallTimeout: callTimeout,
			}})
			if started := f.Now(); started > nobodyWaits {
				t.Errorf("New took %v", started)
			}
			for _, l := range f.Limiters {
				k := l.Key("k")
				for verb, allow := range map[string]func() bool{"Allow": k.Allow, "TryAllow": k.TryAllow} {
					if got := f.Ask("k", allow); got != c.want {
						t.Errorf("%s is %v, want %v", verb, got, c.want)
					}
				}
			}
			// then nobody waits for the client, whatever number of requests comes
			load := f.Load("k", perEach)
			testkit.Eventually(t, "1000 requests", func() bool {
				s := f.Seen("k", 0, f.Now())
				return s.Admitted+s.Denied > 1000
			})
			seen := f.Seen("k", 0, f.Now())
			t.Logf("%d admitted, %d denied, slowest %v", seen.Admitted, seen.Denied, seen.Slowest)
			if c.want && seen.Denied > 0 || !c.want && seen.Admitted > 0 {
				t.Errorf("%+v", seen)
			}
			// and when the server comes, the fleet reaches its rate
			server.Restart(t)
			took := f.AwaitRecovery(limit.Tokens)
			t.Logf("%d/s %v after the server", limit.Tokens, took.After)
			took.CheckInTime(f.State("k").Config.TTL)
			load.Stop()
			f.CheckNobodyWaited("k", 0, f.Now(), nobodyWaits)
			if !c.want {
				f.CheckBound("k", limit, 0)
			}
		})
	}
}

func TestRow11NoMoreClientsIsAnOutage(t *testing.T) {
	t.Parallel()
	// given fleets under load
	server := redistest.Start(t)
	ctl := admin(t, server.Addr)
	all := newModes(t, server.Addr, "", nil)
	// when the server has room for one client alone, and that is ours (it says so before it is asked, and go-redis does
	// not read that: all that is heard is a broken pipe)
	all.suffer(t, outage{inject: func() {
		must(t, ctl.ConfigSet(t.Context(), "maxclients", "1").Err())
		must(t, ctl.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	}, cure: func() {
		must(t, ctl.ConfigSet(t.Context(), "maxclients", "10000").Err())
	}})
}
