package hybrid_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/hook"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// nodesOf is a network of several nodes, which serve the keys that begin with their number. Some of
// the nodes can be away, and keys can move.
type nodesOf struct {
	*network
	moved atomic.Pointer[func(key string, node int) int]
}

// cluster is a network of nodes as a Store that is a Router.
func (t *world) cluster() *nodesOf { return &nodesOf{network: t.network} }

// NodeOf implements lease.Router.
func (s *nodesOf) NodeOf(key string) int {
	node := int(key[0] - '0')
	if f := s.moved.Load(); f != nil {
		node = (*f)(key, node)
	}
	return node
}

// NodeName implements lease.Router.
func (s *nodesOf) NodeName(node int) string { return fmt.Sprint("node ", node) }

// Ping implements lease.Pinger.
func (s *nodesOf) Ping(context.Context) error { return nil }

// Exchange implements lease.Store: each node is a group of its own.
func (s *nodesOf) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	s.network.Exchange(ctx, calls, func(group []*lease.Call) {
		byNode := make(map[int][]*lease.Call)
		for _, c := range group {
			c.Node = s.NodeOf(c.Key)
			byNode[c.Node] = append(byNode[c.Node], c)
		}
		for _, g := range byNode {
			done(g)
		}
	})
}

// keysOn are n keys that this node serves.
func keysOn(node string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("%s:%d", node, i))
	}
	return keys
}

// hang makes one node take calls and never answer, and the others serve.
func (t *world) hang(node string) {
	t.Helper()
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	t.onKeys(node+":", verdict{late: hang})
}

// atOnce asks for a token of each key, and checks that each is decided without any wait: in virtual
// time a request that waits for anything but a lock takes time. It returns how many were admitted.
func (t *world) atOnce(l *hybrid.Limiter, keys []string) (admitted int) {
	t.Helper()
	t.lasts(0, 0, func() {
		for _, k := range keys {
			r, err := l.Take(t.Context(), k, 1)
			check(t, err == nil && (r.Source == hybrid.SourceFallback || r.OK), "%q: %+v, %v", k, r, err)
			if r.OK {
				admitted++
			}
		}
	})
	return admitted
}

// The first call that fails finds out for all keys: from then on none waits, seen or unseen, one
// call at a time goes out for all of them, and when the node is back they return one by one.
func TestAnOutageIsFoundOutOnceForAllKeys(t *testing.T) {
	keys := testkit.ShortOrLong(t, 1_000, testkit.PlainOrRace(10_000, 1_000), "keys")
	bubble(t, func(t *world) {
		l := t.start(by(hybrid.Policy{}, hybrid.PerSecond(1000)))
		seen, unseen := keysOn("0", keys), keysOn("1", keys)
		t.admitted(l, seen...)
		time.Sleep(2 * time.Second)
		// when the store hangs, requests before the first failure wait at most CallTimeout,
		t.hangs()
		together(100, func(i int) {
			t.lasts(0, 100*time.Millisecond, func() { l.Allow(seen[i]) })
		})()
		// and then none waits: every key has its share, also an unheard one
		for range 5 {
			equal(t, t.atOnce(l, seen), keys, "seen keys had their share")
			equal(t, t.atOnce(l, unseen), keys, "unseen keys had their share")
			_, calls := t.during(func() { time.Sleep(ttl) })
			check(t, calls <= 12, "%d calls in a TTL, of %d keys that are asked for", calls, 2*keys)
		}
	})
}

// Calls under way when the first call fails have failed too: their requests stop waiting.
func TestCallsUnderWayFailWithTheFirst(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(denying, hybrid.PerSecond(1000)))
		for i := range 10 {
			must(t, l.Allow(fmt.Sprint(i)), "denied")
		}
		time.Sleep(time.Millisecond)
		t.hangs()
		from := time.Now()
		together(10, func(i int) {
			time.Sleep(time.Duration(i) * 9 * time.Millisecond)
			l.Allow(fmt.Sprint(i))
			equal(t, time.Since(from), 93750*time.Microsecond, "after the first sending the wait ends")
		})()
	})
}

// A batch that is being built as an outage begins has failed too: no request waits for its calls.
func TestCallsThatAreBuiltAsTheFirstFailsFailWithIt(t *testing.T) {
	bubble(t, func(t *world) {
		keys := keysOn("0", 10)
		cfg := by(denying, hybrid.PerSecond(1000))
		var slow atomic.Bool
		cfg.InstanceID = hook.BeforeReport(func(key string) {
			if key == keys[5] && slow.Swap(false) {
				time.Sleep(50 * time.Millisecond)
			}
		})
		l := t.startOn(t.cluster(), cfg)
		for _, k := range keys {
			noErr(t, l.Wait(t.Context(), k))
		}
		time.Sleep(ttl)
		t.every(verdict{lost: true})
		from := time.Now()
		wait := background(func() { l.Allow(keys[0]) })
		time.Sleep(60 * time.Millisecond)
		slow.Store(true)
		together(9, func(i int) {
			r, err := l.Take(t.Context(), keys[i+1], 1)
			check(t, err == nil && !r.OK && r.Source == hybrid.SourceFallback, "Take: %+v, %v", r, err)
			d := time.Since(from)
			check(t, d <= 111*time.Millisecond, "%v after the first sending the wait ends", d)
		})()
		wait()
	})
}

// Where no batch may be sent any more, no probe is lost: the node is back as soon as it answers.
func TestNoProbeIsLostWhereTooManyBatchesAreUnderWay(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := by(hybrid.Policy{Fallback: hybrid.FallbackDeny, TTL: 30 * time.Second}, hybrid.PerSecond(1000))
		cfg.CallTimeout = time.Second
		l := t.startOn(t.cluster(), cfg)
		keys := keysOn("0", 400)
		t.admitted(l, keys...)
		time.Sleep(10 * time.Second)
		t.every(verdict{lost: true})
		together(len(keys), func(i int) {
			time.Sleep(time.Duration(i) * 2 * time.Millisecond)
			l.Allow(keys[i])
		})()
		time.Sleep(10 * time.Second)
		t.every(verdict{})
		t.soon(30*time.Second, func() bool { return l.Allow(keys[0]) })
	})
}

// When one node of a cluster hangs, only its keys are degraded, and no other request waits for it.
func TestANodeThatHangsDegradesOnlyItsOwnKeys(t *testing.T) {
	bubble(t, func(t *world) {
		c := t.cluster()
		l := t.startOn(c, by(denying, hybrid.PerSecond(1000)))
		ask := func(keys []string, want bool) {
			t.Helper()
			for _, k := range keys {
				r, err := l.Take(t.Context(), k, 1)
				check(t, err == nil && r.OK == want && (r.Source == hybrid.SourceFallback) == !want,
					"%q: %+v, %v", k, r, err)
			}
		}
		for _, node := range []string{"0", "1", "2"} {
			ask(keysOn(node, 100), true)
		}
		time.Sleep(2 * time.Second)
		t.hang("1")
		t.lasts(90*time.Millisecond, 100*time.Millisecond, func() { ask(keysOn("1", 1), false) })
		t.lasts(0, 0, func() {
			ask(keysOn("0", 200), true) // half of them are new
			ask(keysOn("1", 200), false)
			ask(keysOn("2", 200), true)
		})
		equal(t, l.Stats().Degraded, 1,
			"keys in use are degraded; the others are denied without an entry")
		// when that node is replaced by another, its keys follow at once
		to2 := func(_ string, node int) int { return min(node, 1) * 2 }
		c.moved.Store(&to2)
		t.setJudge(nil)
		t.lasts(0, 0, func() { ask(keysOn("1", 50), true) })
	})
}

// While a probe is under way its key may move to another node. The outcome of the probe says nothing
// about that node.
func TestAProbeOfAKeyThatMovesIsOfTheNodeItWentTo(t *testing.T) {
	bubble(t, func(t *world) {
		c := t.cluster()
		l := t.startOn(c, by(denying, hybrid.PerSecond(1000)))
		t.admitted(l, append(keysOn("1", 5), keysOn("2", 5)...)...)
		time.Sleep(2 * time.Second)
		t.hang("1")
		check(t, !l.Allow("1:0"), "admitted by a node that hangs")
		before := t.callsFor("1:0")
		for t.callsFor("1:0") == before {
			l.Key("1:0").TryAllow()
			time.Sleep(time.Millisecond)
		}
		to2 := func(_ string, node int) int { return max(node, 2) }
		c.moved.Store(&to2)
		l.Key("1:0").TryAllow() // finds out
		time.Sleep(100 * time.Millisecond)
		t.lasts(0, 0, func() { check(t, l.Allow("2:new"), "a node that is well counts as away") })
	})
}

// A Store that is no Router says which node serves a key with its first reply. New keys come out of
// an outage all the same, also where their calls travel with those of keys whose node is known.
func TestNewKeysComeBackWithoutARouter(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(denying, hybrid.PerSecond(1000).WithBurst(3))) // each token is a call
		for _, k := range keysOn("0", 20) {
			noErr(t, l.Wait(t.Context(), k))
		}
		time.Sleep(2 * time.Second)
		t.every(verdict{lost: true})
		check(t, !l.Allow("new"), "admitted without the store")
		t.every(verdict{})
		ctx, cancel := context.WithCancel(t.Context())
		wait := together(20, func(i int) {
			for l.Wait(ctx, keysOn("0", 20)[i]) == nil {
				time.Sleep(time.Millisecond)
			}
		})
		n := 0
		t.soon(2*ttl, func() bool { n++; return l.Allow(fmt.Sprint("new ", n)) })
		cancel()
		wait()
	})
}

// One call of a great many is slow: the node answers others meanwhile, so no other key is degraded.
func TestOneSlowCallIsNoOutage(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(denying, hybrid.PerSecond(1000)))
		must(t, l.Allow("other"), "denied")
		t.onKeys("giant", verdict{delay: 300 * time.Millisecond})
		wait := background(func() { l.Allow("giant") })
		for i := range 400 {
			time.Sleep(time.Millisecond)
			check(t, l.Allow(fmt.Sprint("other ", i)), "denied after %d ms", i+1)
		}
		wait()
	})
}

// After an outage the calls of one process begin slowly, whatever is asked of it: 100 in the first
// Target, and in each Target twice as many as in the one before.
func TestKeysComeBackInNumbersThatDouble(t *testing.T) {
	keys := keysOn("0", testkit.ShortOrLong(t, 500, testkit.PlainOrRace(5000, 500), "keys"))
	bubble(t, func(t *world) {
		l := t.start(by(denying, hybrid.PerSecond(1000)))
		t.admitted(l, keys...)
		time.Sleep(2 * time.Second)
		t.every(away)
		for _, k := range keys {
			l.Allow(k)
		}
		used(time.Second, func() { l.Allow(keys[0]) })
		var began time.Time // the recovery
		t.setJudge(func(*lease.Call) verdict {
			if began.IsZero() {
				began = time.Now()
			}
			return verdict{}
		})
		total := 0
		for target := 0; target < 8; {
			_, calls := t.during(func() {
				for from := time.Now(); time.Since(from) < 100*time.Millisecond; time.Sleep(5 * time.Millisecond) {
					t.lasts(0, 0, func() { // a key whose turn has not come waits for nothing
						for _, k := range keys {
							l.Allow(k)
						}
					})
				}
			})
			if began.IsZero() {
				continue // no probe has gone out yet
			}
			target++
			total += calls
			check(t, total <= 1+100*(1<<target-1)+1, "%d calls within %d Targets of the recovery", total, target)
		}
		check(t, total >= len(keys), "%d calls of %d keys", total, len(keys))
		equal(t, l.Stats().Degraded, 0, "keys are degraded")
	})
}

// While its node is away a new key asks LimitsFor once for a request, whatever decides about it, and leaves the
// table though its limits can no longer be had.
func TestANewKeyInAnOutageAsksForItsLimitsOnce(t *testing.T) {
	bubble(t, func(t *world) {
		asked := 0
		l := t.startOn(t.cluster(), hybrid.Config{KeysMax: 5, LimitsFor: plans(func(key string) []hybrid.Limit {
			if asked++; key[2] == 'x' && asked > 1 {
				return nil // their source has failed
			}
			return limits(hybrid.PerSecond(1000))
		})})
		// Given a node that is away,
		must(t, l.Allow("0:known"), "denied")
		time.Sleep(2 * time.Second)
		t.every(away)
		l.Allow("0:known")
		time.Sleep(50 * time.Millisecond)
		// when new keys are asked for by requests that wait, and others by one that may be the probe,
		for i := range 8 {
			asked = 0
			_ = l.Wait(within(t, time.Millisecond), fmt.Sprint("0:x", i))
			check(t, asked <= 1, "Wait: LimitsFor was asked %d times", asked)
			asked = 0
			l.Allow(fmt.Sprint("0:y", i))
			check(t, asked <= 1, "Allow: LimitsFor was asked %d times", asked)
			time.Sleep(100 * time.Millisecond)
		}
		// then all of them leave in time.
		t.every(verdict{})
		time.Sleep(300 * time.Hour)
		equal(t, l.Stats().Keys, 0, "keys")
	})
}
