package protocol

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Stories of buckets that are lost: docs/protocol.md sections 6.1 to 6.6, and 6.12.

func TestLossIsWaitedOutAsLongAsTheLongestLease(t *testing.T) {
	short, long := 100*time.Millisecond, 600*time.Millisecond
	for _, c := range []struct {
		name string
		// lease has b hold the whole bucket under a long lease; a hears of the bucket at a short T.
		lease func(s *scene, a, b *holder)
	}{
		{"T has grown since", func(s *scene, a, b *holder) {
			s.config.Version.Revision = 1 // remembered for a month
			s.calls(a, ask{})
			s.calls(b, ask{Config: s.lasting(long)})
			s.now += 4_100_000
			s.calls(b, ask{Config: s.lasting(long), Want: 10})
		}},
		{"a version has shortened T", func(s *scene, a, b *holder) {
			s.config.TTL = long
			s.calls(b, ask{Want: 10})
			s.config.TTL, s.config.Version.Deploy = short, 1
			s.calls(a, ask{})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// given such leases
			s, a, b := pair(t, lease.PerSecond(10), short)
			c.lease(s, a, b)
			lasts := b.Deadline().Sub(s.instant())
			testkit.Must(t, b.Pool.Held() == 10 && lasts >= 500*time.Millisecond, "b holds %d for %v",
				b.Pool.Held(), lasts)
			// when the bucket is lost, a knows of it, and asks for everything when b's lease is about to end
			s.now += 10_000
			s.loses(a)
			s.now = int64(b.Deadline())/1000 - 1
			s.draws(a, 10)
			s.spends(b)
			// then all of it together stays within the burst, and the wait ends soon after the lease
			s.audits()
			left := s.bucket.Dump().Frozen - s.now
			testkit.Check(t, left >= 0 && left <= 800_000,
				"at the end of the lease nothing is refilled for %d µs more", left)
		})
	}
}

func TestOldWordOfABucketFreezesTheNextOneForNoLongerThanALease(t *testing.T) {
	// given a bucket that one process heard of a day ago, that was lost, and that another one has made anew
	s, a, b := pair(t, lease.PerSecond(1000), 400*time.Millisecond)
	s.config.Version.Revision = 1 // remembered for a month
	s.calls(a, ask{})
	s.now += exact.Micros(24 * time.Hour)
	s.loses(b)
	// when that one calls, a while later
	for _, after := range []int64{400_000, 20_000_000} {
		s.now += after
		s.calls(a, ask{})
	}
	// then nothing is waited out, as no lease of the lost bucket can last that long
	n := s.draws(b, 100)
	testkit.Check(t, n == 100, "granted %d of 100", n)
}

func TestNothingFillsWhileALossIsWaitedOut(t *testing.T) {
	// given a bucket that was lost, as its first caller proves
	limit := lease.PerSecond(100)
	c := lease.Policy{}.ConfigFor([]lease.Limit{limit}, 0, 0)
	var b Bucket
	var g lease.Grant
	r := lease.Request{Holder: "a", Seq: 9, Config: c, Weight: 1, Epoch: 5, Counter: 7, LeaseMax: c.TTL,
		HeardAt: 1_000_000, HeardExpiry: time.Second, Want: 100, Need: 1}
	now := int64(1_000_000)
	testkit.NoErr(t, b.Call(now, &r, &g))
	levels := func(after int64, op lease.Op, c lease.Config) []int64 {
		st, err := b.Configure(now+after, op, c)
		testkit.NoErr(t, err)
		return st.Levels[:len(st.Config.Limits)]
	}
	// when it is reset, and when a second limit is added, before the lost leases have ended
	reset := levels(1, lease.OpReset, lease.Config{})
	c.Limits = []lease.Limit{limit, lease.PerMinute(1000)}
	added := levels(2, lease.OpSet, c)
	testkit.Check(t, g.Granted == 0 && slices.Max(reset) == 0 && slices.Max(added) == 0,
		"granted %d; reset: levels %v; with a new limit: %v", g.Granted, reset, added)
	// then they fill from the end of the wait on
	later := levels(exact.Micros(c.TTL)+1_000_000, lease.OpInspect, lease.Config{})
	testkit.Check(t, slices.Equal(later, []int64{100, 16}), "a second after the wait: levels %v", later)
}

func TestASecondLossDoesNotEndTheWaitForTheFirst(t *testing.T) {
	// given b, who holds the whole bucket under a lease that is longer than the T that others propose
	short, long := 100*time.Millisecond, 600*time.Millisecond
	s, a, b := pair(t, lease.PerSecond(10), short)
	s.config.TTL = long
	s.calls(b, ask{Want: 10})
	s.config.TTL, s.config.Version.Deploy = short, 1
	s.calls(a, ask{})
	// when the bucket is lost, a proves it, and what a has started is lost as well, while a and a
	// newcomer that heard of the second bucket only are waiting
	s.now += 10_000
	s.loses(a)
	newcomer := s.holder("newcomer")
	s.now += 10_000
	s.calls(newcomer, ask{})
	s.now += 10_000
	s.loses(newcomer)
	// then what is admitted with b's lease is within the burst
	s.now = int64(b.Deadline())/1000 - 1
	s.draws(newcomer, 10)
	s.spends(b)
	s.audits()
}

func TestACallThatComesAfterTheHeardExpiryProvesNoLoss(t *testing.T) {
	for _, c := range []struct {
		name string
		late time.Duration // after the moment at which the bucket may have expired
		lost bool
	}{{"a microsecond before", -time.Microsecond, true}, {"then", 0, false}, {"long after", time.Minute,
		false}} {
		for _, newcomer := range []bool{false, true} {
			// given a call that knows of a bucket and hangs until that may have expired
			s, a, b := pair(t, lease.PerSecond(100), 400*time.Millisecond)
			g := s.calls(a, ask{Want: 30})
			hangs := s.opens(a, ask{Want: 10})
			s.now = g.ServerTime + exact.Micros(g.Expiry+c.late)
			s.bucket = Bucket{}
			if newcomer { // calls first
				s.calls(b, ask{Want: 10})
			}
			// when it is executed
			late := s.executes(hangs)
			// then it waits for no loss but one before the expiry
			d := s.bucket.Dump()
			testkit.Check(t, d.Frozen > s.now == c.lost && late.Granted > 0 != c.lost && late.Void &&
				late.Frozen > 0 == c.lost && (newcomer || late.Epoch > g.Epoch),
				"%s, after a newcomer %v: frozen until %d, %+v", c.name, newcomer, d.Frozen-s.now, late)
		}
	}
}
