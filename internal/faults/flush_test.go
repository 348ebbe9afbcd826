package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// leastTTL is the T of these processes: 4 times the Target. It grows where the machine is slow.
const leastTTL = 400 * time.Millisecond

// TestRow12LostStateStartsEmptyAndWaitsT: every process knew the bucket, so whoever comes first
// proves that it was lost.
func TestRow12LostStateStartsEmptyAndWaitsT(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*testing.T, *redistest.Server){
		"FLUSHALL":            func(t *testing.T, s *redistest.Server) { s.Do(t, "FLUSHALL") },
		"memory-only restart": func(t *testing.T, s *redistest.Server) { s.Restart(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forgetUnderLoad(t, forget)
		})
	}
}

func forgetUnderLoad(t *testing.T, forget func(*testing.T, *redistest.Server)) {
	// Given four processes that have used up the burst and go on asking for more than the rate,
	server := redistest.Start(t)
	rdb := client(t, server.Addr)
	f, load := saturated(t, 4, server.Addr)
	before := rawOf(t, rdb, key)
	// when Redis forgets everything, twice,
	for range 2 {
		lost := f.Now()
		forget(t, server)
		// then the bucket that takes the lost one's place is a later one, and refills nothing for a T,
		var after raw
		testkit.Eventually(t, "a new bucket", func() bool {
			after = rawOf(t, rdb, key)
			return after.exists
		})
		if after.epoch <= before.epoch || after.frozen < after.created+leastTTL.Microseconds() {
			t.Errorf("the new bucket does not wait for a T: %+v after %+v", after, before)
		}
		before = after
		// the rate comes back,
		took := f.CheckRecovers(key, busy.Tokens)
		t.Logf("lost at %v; a full second at the rate had passed %v after the new bucket was seen", lost,
			took.After)
	}
	load.Stop()
	// and in no window was more admitted than by one bucket that nobody ever lost.
	f.CheckBound(key, busy, 0)
}

// TestRow12ANewcomerAfterAnUnseenLossAdmitsAtMostOneBurstMore is the documented other case: nobody
// who knew the bucket comes before somebody who did not. Then a lost bucket looks like one that
// never was.
func TestRow12ANewcomerAfterAnUnseenLossAdmitsAtMostOneBurstMore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		policy hybrid.Policy
		extra  int64 // what a newcomer may admit beyond (1)
	}{
		{"overcommit 0", hybrid.Policy{Fallback: hybrid.FallbackDeny}, hourly.Tokens},
		{"overcommit 40", hybrid.Policy{Fallback: hybrid.FallbackDeny, Overcommit: 40}, hourly.Tokens + 40},
		{"start empty", hybrid.Policy{Fallback: hybrid.FallbackDeny, StartEmpty: true}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// Given a bucket that one process has used up,
			server := redistest.Start(t)
			f := NewFleet(t, Options{Size: 3, Addr: server.Addr, Config: patient(hourly, c.policy)})
			first := f.Drain(0, key)
			// when it is lost, and one that never heard of it asks first,
			do(t, client(t, server.Addr), "FLUSHALL")
			newcomer := f.Drain(1, key)
			// and then one that has, and another newcomer,
			knower, third := f.Drain(0, key), f.Drain(2, key)
			t.Logf("admitted %d, and after the loss %d by a newcomer, %d by the one that knew, %d by another",
				first, newcomer, knower, third)
			// then the bucket was spent once more at most, and with StartEmpty not at all.
			refilled := int64(f.Now() / (hourly.Per / time.Duration(hourly.Tokens)))
			if total := newcomer + knower + third; total > c.extra+refilled {
				t.Errorf("%d admitted after the loss, at most %d are allowed", total, c.extra)
			}
			if c.policy.StartEmpty {
				return // nothing was admitted that could be audited
			}
			f.CheckBound(key, hourly, c.policy.Overcommit+c.extra)
			// This is what the documentation warns of, so it should be true.
			if f.Audit(key, hourly, c.policy.Overcommit).ExceededBy < hourly.Tokens/2 {
				t.Error("a newcomer found no full bucket: the documentation may promise more")
			}
		})
	}
}
