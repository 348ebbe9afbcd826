package faults

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// leastTTL is the T of a fleet with default settings: 4 times the Target. It grows on a slow
// machine.
const leastTTL = 400 * time.Millisecond

var (
	// lasting has a burst of a minute at its rate. A holder remembers a bucket that it has used up for
	// that long, so a process that stands still for a while can still prove a loss.
	lasting = hybrid.PerSecond(100).WithBurst(6000)
	// still refills nothing while a test runs.
	still = hybrid.PerHour(1).WithBurst(100)
)

// usedUp starts a fleet on the limit lasting that has used the burst up and asks for six times the
// rate.
func (s *site) usedUp(size int) (*fleet, *load) {
	s.t.Helper()
	f := s.fleet(size, with(lasting, strict))
	for i := 0; f.state(key).Levels[0] >= lasting.Burst/10 || i == 0; i++ {
		f.drain(i%size, key)
	}
	load := f.load(key, 6*int(lasting.Tokens)/size)
	f.warm()
	return f, load
}

// TestRow12LostStateStartsEmptyAndWaitsT: every process knew the bucket, so the first to call
// proves that it was lost.
func TestRow12LostStateStartsEmptyAndWaitsT(t *testing.T) {
	testkit.LongOnly(t)
	each(t, map[string]func(*site){
		"FLUSHALL":            func(s *site) { s.do("FLUSHALL") },
		"memory-only restart": func(s *site) { s.Restart(s.t) },
	}, func(t *testing.T, forget func(*site)) {
		// Given four processes that have used up the burst and go on asking for more than the rate,
		server := start(t)
		f, load := server.usedUp(4)
		before := server.raw()
		// when Redis forgets everything, twice,
		for range 2 {
			forget(server)
			// then the bucket that takes the lost one's place is a later one, and refills nothing for a T,
			var after raw
			testkit.Eventually(t, "a new bucket", func() bool {
				after = server.raw()
				return after.exists
			})
			testkit.Check(t, after.epoch > before.epoch && after.frozen >= after.created+leastTTL.Microseconds(),
				"the new bucket does not wait for a T: %+v after %+v", after, before)
			before = after
			// the fleet gets tokens again,
			f.awaitLeased(lasting.Tokens)
		}
		load.stop()
		// and no window admitted more than one bucket that was never lost.
		f.checkBound(key, lasting, 0)
	})
}

// TestRow03AHangIsNoLoss: a bucket that expires while calls hang was not lost. How soon the rate is back is
// logged here, and asserted in virtual time by TestTheRateIsBackSoonAfterTheCure in hybrid.
func TestRow03AHangIsNoLoss(t *testing.T) {
	testkit.LongOnly(t)
	each(t, map[string]func(*site) outage{
		"a hung server":   hang,
		"a paused server": injections["Row24 a paused server"].how,
		"a black hole":    injections["Row08 a black hole"].how,
	}, func(t *testing.T, how func(*site) outage) {
		// Given three processes that ask for more than the rate, with the client's settings that
		// docs/operations.md recommends,
		server := start(t)
		o := how(server)
		server.client = func(o *redis.Options) {
			o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = 500*time.Millisecond, 500*time.Millisecond,
				500*time.Millisecond, 500*time.Millisecond
		}
		f, load := server.saturated(3)
		remembered := server.ctl.PTTL(t.Context(), bucketOf(key)).Val()
		// when none of their calls is answered until the bucket has expired,
		o.inject()
		time.Sleep(remembered + time.Second)
		o.cure()
		cured := f.now()
		// then they get tokens again,
		f.awaitLeased(busy.Tokens)
		t.Logf("%d tokens within %v", busy.Tokens, (f.now() - cured).Round(time.Millisecond))
		// from a bucket that does not wait as after a loss, and expires soon,
		after := server.raw()
		kept := server.ctl.PTTL(t.Context(), bucketOf(key)).Val()
		testkit.Check(t, after.frozen == 0 && kept < time.Minute, "frozen until %d, kept for %v", after.frozen,
			kept)
		load.stop()
		// and no window exceeds its bound.
		f.checkBound(key, busy, 0)
	})
}

// TestRow12ANewcomerAfterAnUnseenLossAdmitsAtMostOneBurstMore is the documented other case: a
// process that did not know the bucket calls before those that did. Then a lost bucket looks like
// one that never was.
func TestRow12ANewcomerAfterAnUnseenLossAdmitsAtMostOneBurstMore(t *testing.T) {
	type story struct {
		policy hybrid.Policy
		extra  int64 // what a newcomer may admit beyond (1)
	}
	each(t, map[string]story{
		"overcommit 0":  {denying, still.Burst},
		"overcommit 40": {hybrid.Policy{Fallback: hybrid.FallbackDeny, Overcommit: 40}, still.Burst + 40},
		"start empty":   {hybrid.Policy{Fallback: hybrid.FallbackDeny, StartEmpty: true}, 0},
	}, func(t *testing.T, c story) {
		// Given a bucket that one process has used up, with leases that do not end,
		server := start(t)
		cfg := patient(still, c.policy)
		cfg.Policy.TTL = time.Hour
		f := server.fleet(3, cfg)
		f.drain(0, key)
		// when it is lost, and a process that never knew it asks first,
		server.do("FLUSHALL")
		newcomer := f.drain(1, key)
		// and then one that knew it, and another newcomer,
		knower, third := f.drain(0, key), f.drain(2, key)
		// then the bucket was spent once more at most, and with StartEmpty not at all.
		testkit.Check(t, newcomer+knower+third <= c.extra,
			"%d, %d and %d admitted after the loss, at most %d are allowed", newcomer, knower, third, c.extra)
		if c.policy.StartEmpty {
			return // no admission to audit
		}
		over := c.policy.Overcommit
		f.checkBound(key, still, over+c.extra)
		// The documentation warns of that, so it must happen.
		testkit.Check(t, f.excess(key, still)-over >= still.Burst/2, "the documentation may promise more")
	})
}

// With "everysec" Redis hands every write to the system before it answers, so that a killed server
// loses nothing; only while a sync of the disk is under way it may postpone that, by 2 s at most.
// With "always" it never does.
var everySecond = []string{"--appendonly", "yes", "--appendfsync", "everysec"}

// TestRow13ARestartFromTheAppendOnlyFileKeepsEveryToken: what was written before kill -9 is there,
// again and again, though the file is synced to the disk once a second only.
func TestRow13ARestartFromTheAppendOnlyFileKeepsEveryToken(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	server := start(t, everySecond...)
	f := server.fleet(3, patient(still, denying))
	for round := range 8 {
		// Given two processes that have drawn, spent and given back,
		f.spendAndSettle(round%2, 5)
		before, stored := f.state(key), server.contents()
		burnt := f.stats().Burnt // which the ledger still has, until its slice ends
		gone := int64(5*(round+1)) + burnt
		testkit.Must(t, before.Levels[0]+gone == still.Burst && before.Ledger <= burnt,
			"%d of %d were spent: %+v", gone, still.Burst, before)
		server.awaitInfo("persistence", "aof_buffer_length:0") // nothing is postponed
		// when the server is killed and starts again,
		server.Restart(t)
		// then its content is the same, to the last byte (records expire after a while, the bucket does
		// not).
		now := server.contents()
		for line := range strings.Lines(now) {
			testkit.Check(t, strings.Contains(stored, line), "%s was not there before:\n%s", line, stored)
		}
		testkit.Check(t, strings.Contains(now, fmt.Sprintf("%q", bucketOf(key))), "no bucket:\n%s", now)
		after := f.state(key)
		testkit.Check(t, after.Levels == before.Levels && after.Epoch == before.Epoch &&
			after.Counter == before.Counter, "before %+v, after %+v", before, after)
	}
	// A process that never knew the bucket finds the rest, and no more.
	f.takeAll(2, f.state(key).Levels[0])
	f.checkBound(key, still, 0)
}

func TestRow13ARestartFromTheAppendOnlyFileUnderLoadContinues(t *testing.T) {
	testkit.LongOnly(t)
	each(t, map[string]string{"always": "always", "everysec": "everysec"}, func(t *testing.T, fsync string) {
		// Given four processes that ask for more than the rate,
		server := start(t, "--appendonly", "yes", "--appendfsync", fsync)
		f, load := server.usedUp(4)
		before := server.raw()
		// when the server is killed in the midst of it and starts again,
		server.Restart(t)
		f.awaitLeased(lasting.Tokens)
		load.stop()
		// then it is the same bucket, which waited for a T only if a postponed write was lost and a
		// process proved it;
		after := server.raw()
		lost := after.epoch != before.epoch
		testkit.Check(t, after.created == before.created && (!lost || fsync == "everysec" && after.frozen > 0),
			"before %+v, after %+v", before, after)
		// the promise held all the time.
		f.checkBound(key, lasting, 0)
	})
}

// TestWhatAKilledServerStillKnows: of 100 tokens 40 are spent, a snapshot is taken, 30 more are
// spent, and then the server is killed and starts again. One central bucket would have 30 left.
func TestWhatAKilledServerStillKnows(t *testing.T) {
	testkit.LongOnly(t)
	const knower, newcomer = 0, 1
	const nothing, whatIsLeft, whatTheSnapshotHas, everything = 0, 1, 2, 3
	type story struct {
		args         []string
		snapshot     bool
		first, finds int   // asks first
		extra        int64 // tokens that the server forgot, without a proof of the loss
	}
	each(t, map[string]story{
		// The file has every answered call.
		"append-only file, one that knew asks first": {everySecond, false, knower, whatIsLeft, 0},
		"append-only file, a newcomer asks first":    {everySecond, false, newcomer, whatIsLeft, 0},
		// The snapshot is older: later grants are undone, unless a process proves the loss. Then the
		// bucket starts empty.
		"snapshots only, one that knew asks first": {nil, true, knower, nothing, 0},
		"snapshots only, a newcomer asks first":    {nil, true, newcomer, whatTheSnapshotHas, 30},
		// Without either, it is a new bucket, or one that starts empty.
		"nothing, one that knew asks first": {nil, false, knower, nothing, 0},
		"nothing, a newcomer asks first":    {nil, false, newcomer, everything, 70},
	}, func(t *testing.T, c story) {
		server := start(t, c.args...)
		f := server.fleet(2, patient(still, denying))
		f.spendAndSettle(0, 40)
		found := [4]int64{everything: still.Burst, whatTheSnapshotHas: f.state(key).Levels[0]}
		if c.snapshot {
			server.do("SAVE")
		}
		f.spendAndSettle(0, 30)
		found[whatIsLeft] = f.state(key).Levels[0]
		if c.args != nil {
			server.awaitInfo("persistence", "aof_buffer_length:0")
		}
		// when the server is killed and starts again,
		server.Restart(t)
		// then the first process finds the tokens that the server still knows,
		f.takeAll(c.first, found[c.finds])
		// and (1) holds up to c.extra.
		f.checkBound(key, still, c.extra)
	})
}

// TestRow16AReplicaThatLaggedIsProvedSoByTheCallCounter: of 100 tokens 40 are spent, the replica is
// cut off, 30 more are spent, the master dies, and the replica, with a level of 60, takes its
// place.
func TestRow16AReplicaThatLaggedIsProvedSoByTheCallCounter(t *testing.T) {
	type story struct {
		first int  // 0 knows all calls, 1 those that the replica knows too, 2 none
		finds bool // it finds the replica's tokens; otherwise none
	}
	each(t, oneOrAll(t, "the best informed asks first", map[string]story{
		"the best informed asks first":                       {0, false},
		"one that knows no more than the replica asks first": {1, true},
		"a newcomer asks first":                              {2, true},
	}), func(t *testing.T, c story) {
		master, replica := start(t, "--repl-diskless-sync-delay", "0"), start(t)
		replica.do("REPLICAOF", "127.0.0.1", master.Port)
		replica.AwaitSync(t)
		var addr atomic.Value // address of the service, as from DNS or a Sentinel
		addr.Store(master.Addr)
		master.client = func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
			}
		}
		f := master.fleet(3, patient(still, denying))
		// Given that
		f.spendAndSettle(0, 20)
		f.spendAndSettle(1, 20)
		has := f.settled()
		ofReplica := replica.store()
		f.store = ofReplica
		testkit.Eventually(t, "the replica has seen that", func() bool {
			st := f.state(key)
			return st.Levels == has.Levels && st.Counter == has.Counter
		})
		replica.do("REPLICAOF", "NO", "ONE")
		const lost = 30
		f.spendAndSettle(0, lost)
		// when the master dies, and process c.first is the first to find the new one,
		addr.Store(replica.Addr)
		master.Kill()
		// then it gets nothing if it can prove the loss, and otherwise the replica's tokens.
		want, extra := int64(0), int64(0)
		if c.finds {
			want, extra = has.Levels[0], lost
		}
		f.takeAll(c.first, want)
		// Later processes find nothing, so the loss is paid once at most.
		for i := range 3 {
			f.drain(i, key)
		}
		f.checkBound(key, still, extra)
	})
}
