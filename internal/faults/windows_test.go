//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// window is the limit of the tests of windows: 1,000 tokens in any second.
var window = lease.Sliding(1000, time.Second)

// TestRow30AFleetKeepsAWindowWhileProcessesAreKilled: a killed process's holding is charged to the
// window in which its lease ends, as if it had been spent.
func TestRow30AFleetKeepsAWindowWhileProcessesAreKilled(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// Given a fleet under load,
	f := newFamily(t)
	o, ps := f.underLoad(window, true)
	for i := range 2 {
		// when processes are killed and replaced, then the fleet goes on,
		ps[i].kill()
		ps[i] = f.children(1, o)[0]
		f.awaitMore(2 * o.Limit.Tokens)
	}
	f.finish(ps...)
	// and no window exceeds the bound.
	w := f.worst(t, o.Limit)
	testkit.Check(t, w.ExceededBy == 0, "%+v", w)
	f.settled()
}

// TestRow29AFleetKeepsAWindowWhileOneOfItIsStopped: a process that is stopped until its lease has
// ended spends none of it with StrictExpiry, and at most its holding without.
func TestRow29AFleetKeepsAWindowWhileOneOfItIsStopped(t *testing.T) {
	testkit.LongOnly(t)
	each(t, map[string]bool{"strict": true, "not strict": false}, func(t *testing.T, strict bool) {
		f := newFamily(t)
		o, ps := f.underLoad(window, strict)
		for range 2 {
			ps[0].stop()
			f.outlastLeases()
			ps[0].resume()
			f.awaitMore(o.Limit.Tokens)
		}
		stopped := f.finish(ps...)[0]
		w, allowed := f.worst(t, o.Limit), int64(0)
		if !strict {
			allowed = stopped.MostHeld
		}
		testkit.Check(t, w.ExceededBy <= allowed, "exceeded by more than %d: %+v", allowed, w)
	})
}

// TestRow12AWindowThatIsLostIsUsedUpWithStartEmpty: a lost window has been charged nothing, so it
// counts once more at most; with StartEmpty it is used up when the wait for the old leases ends.
func TestRow12AWindowThatIsLostIsUsedUpWithStartEmpty(t *testing.T) {
	testkit.LongOnly(t)
	type story struct {
		empty bool
		extra int64 // tokens
	}
	each(t, map[string]story{
		"start empty": {true, 0}, "full": {false, window.Tokens},
	}, func(t *testing.T, c story) {
		// Given four processes that have used up the window and go on asking,
		server := start(t)
		policy := strict
		policy.StartEmpty = c.empty
		f := server.fleet(4, with(window, policy))
		load := f.load(key, int(window.Tokens))
		f.awaitAdmitted(key, window.Tokens*3/2)
		// when Redis forgets everything,
		server.do("FLUSHALL")
		// then they get tokens of later windows,
		f.awaitAdmitted(key, 2*window.Tokens)
		load.stop()
		// and no window exceeds its bound.
		f.checkBound(key, window, c.extra)
	})
}

// TestRow18AWindowThatStartsEmptyIsKeptThroughAFailover: with any state of it on the new master.
func TestRow18AWindowThatStartsEmptyIsKeptThroughAFailover(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// Given three processes that use up every window, whose clients ask the Sentinels where the master
	// is,
	s := startSentinels(t)
	var stores []lease.Store
	for range 3 {
		stores = append(stores, storeOn(t, redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: masterName, SentinelAddrs: s.addrs})))
	}
	policy := strict
	policy.StartEmpty = true
	f := newFleet(t, with(window, policy), stores...)
	f.store = s.replica.store()
	load := f.load(key, int(window.Tokens))
	f.awaitAdmitted(key, window.Tokens*3/2)
	// when the master is killed, and another elected,
	extra := s.killMaster(window.Tokens)
	testkit.Eventually(t, "a new master", func() bool { return s.current(t) == s.replica.Addr })
	// then they get tokens of later windows, and no window exceeds its bound.
	f.awaitAdmitted(key, 2*window.Tokens)
	load.stop()
	f.checkBound(key, window, extra)
}

// TestRow33WindowsChangedWithLeasesOut: until a TTL after the change the larger of two windows of
// one length holds, and then the new one.
func TestRow33WindowsChangedWithLeasesOut(t *testing.T) {
	testkit.LongOnly(t)
	large, small := window, lease.Sliding(200, window.Per)
	type story struct{ from, to hybrid.Limit }
	each(t, map[string]story{
		"lowered": {large, small}, "raised": {small, large},
		"longer": {large, lease.Sliding(large.Tokens, 2*large.Per)}, "to a bucket": {large, hybrid.PerSecond(200)},
	}, func(t *testing.T, c story) {
		// Given four processes with leases under the old limit, when one of them sets the new one,
		f := start(t).fleet(4, with(c.from, strict))
		load := f.load(key, int(large.Tokens))
		f.awaitAdmitted(key, c.from.Tokens)
		changed := f.now()
		testkit.NoErr(t, f.limiters[0].SetLimits(t.Context(), key, c.to))
		then := f.oldLeasesEnd()
		f.awaitAdmitted(key, 2*c.to.Tokens)
		load.stop()
		// then each holds in its time.
		if c.to.Per == c.from.Per && c.to.Kind == c.from.Kind {
			f.checkBoundIn(key, large, 0, 0, then)
		}
		f.checkBoundIn(key, c.from, 0, 0, changed)
		f.checkBoundIn(key, c.to, 0, then, f.now())
	})
}
