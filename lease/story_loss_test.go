package lease

import (
	"testing"
	"time"
)

// Stories of buckets that are lost: docs/protocol.md sections 6.1 to 6.6, and 6.12.

func TestLossIsWaitedOutAsLongAsTheLongestLease(t *testing.T) {
	short, long := 100*time.Millisecond, 600*time.Millisecond
	for _, c := range []struct {
		name string
		// lease has b hold the whole bucket under a long lease; a hears of the bucket at a short T.
		lease func(s *scene, a, b *holding)
	}{
		{"T has grown since", func(s *scene, a, b *holding) {
			s.calls(a, ask{})
			stretched := s.config
			stretched.TTL = long
			s.calls(b, ask{Config: stretched})
			s.now += 550_000
			s.calls(b, ask{Config: stretched, Want: 10})
		}},
		{"a version has shortened T", func(s *scene, a, b *holding) {
			s.config.TTL = long
			s.calls(b, ask{Want: 10})
			s.config.TTL, s.config.Version.Deploy = short, 1
			s.calls(a, ask{})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// given such leases
			s := newScene(t, PerSecond(10), short)
			a, b := s.holder("a"), s.holder("b")
			c.lease(s, a, b)
			if b.Pool.Held() != 10 || b.Deadline().Sub(s.instant()) < 500*time.Millisecond {
				t.Fatalf("b holds %d for %v", b.Pool.Held(), b.Deadline().Sub(s.instant()))
			}
			// when the bucket is lost, a knows of it, and asks for everything when b's lease is
			// about to end
			s.now += 10_000
			s.bucket = Bucket{}
			s.calls(a, ask{})
			s.now = int64(b.Deadline())/1000 - 1
			s.draws(a, 10)
			s.spends(b)
			// then all of it together stays within the burst, and the wait ends soon after the
			// lease
			s.audits()
			if left := s.bucket.Dump().Frozen - s.now; left < 0 || left > 800_000 {
				t.Errorf("at the end of the lease nothing is refilled for %d µs more", left)
			}
		})
	}
}

func TestOldWordOfABucketFreezesTheNextOneForNoLongerThanALease(t *testing.T) {
	// given a bucket that somebody heard of a day ago, was lost, and was started again by somebody
	// else
	s := newScene(t, PerSecond(1000), 400*time.Millisecond)
	s.config.Version.Revision = 1 // remembered for a month
	a, b := s.holder("a"), s.holder("b")
	s.calls(a, ask{})
	s.now += micros(24 * time.Hour)
	s.bucket = Bucket{}
	s.calls(b, ask{})
	// when that one calls, a while later
	for _, after := range []int64{400_000, 20_000_000} {
		s.now += after
		s.calls(a, ask{})
	}
	// then nothing is waited out, as no lease of the lost bucket can last that long
	if n := s.draws(b, 100); n != 100 {
		t.Errorf("granted %d of 100", n)
	}
}

func TestClaimThatCannotBeTrueChangesNothing(t *testing.T) {
	for _, epoch := range []int64{0, WaitingMax} { // 0 stands for the bucket's own
		// given a bucket with a holder
		s := newScene(t, PerSecond(10), time.Second)
		a := s.holder("a")
		s.calls(a, ask{})
		before := s.bucket.Dump()
		// when somebody claims to have heard what nobody can have heard
		r := Request{Holder: "x", Seq: 1, Config: s.config, Weight: 1, Epoch: epoch, Counter: WaitingMax,
			LeaseMax: time.Second}
		if epoch == 0 {
			r.Epoch = before.Epoch
		}
		s.executes(r)
		// then the bucket is as it was, but for one call more
		after := s.bucket.Dump()
		if after.Epoch != before.Epoch || after.Counter != before.Counter+1 || after.Frozen != 0 ||
			after.Level != before.Level {
			t.Errorf("epoch %d: before %+v\nafter %+v", epoch, before, after)
		}
		if g := s.calls(a, ask{Want: 1}); g.Void || g.Granted != 1 {
			t.Errorf("epoch %d: the holder is answered %+v", epoch, g)
		}
	}
}

func TestNothingFillsWhileALossIsWaitedOut(t *testing.T) {
	// given a bucket that was lost, as its first caller proves
	limit := PerSecond(100)
	c := Policy{}.ConfigFor([]Limit{limit}, 0, 0)
	var b Bucket
	var g Grant
	r := Request{Holder: "a", Seq: 9, Config: c, Weight: 1, Epoch: 5, Counter: 7, LeaseMax: c.TTL,
		HeardAt: 1_000_000, Want: 100, Need: 1}
	now := int64(1_000_000)
	if err := b.Call(now, &r, &g); err != nil || g.Granted != 0 {
		t.Fatal(g.Granted, err)
	}
	// when it is reset, and when a second limit is added, before the lost leases have ended
	if st, err := b.Configure(now+1, OpReset, Config{}); err != nil || st.Levels[0] != 0 {
		t.Errorf("reset: level %d, %v", st.Levels[0], err)
	}
	c.Limits = []Limit{limit, PerMinute(1000)}
	st, err := b.Configure(now+2, OpSet, c)
	if err != nil || st.Levels[0] != 0 || st.Levels[1] != 0 {
		t.Errorf("new limit: levels %v, %v", st.Levels, err)
	}
	// then they fill from the end of the wait on
	st, _ = b.Configure(now+micros(c.TTL)+1_000_000, OpInspect, Config{})
	if st.Levels[0] != 100 || st.Levels[1] != 16 {
		t.Errorf("a second after the wait: levels %v", st.Levels)
	}
}

func TestLimitThatComesBackAfterALossIsNotFull(t *testing.T) {
	// given a newer version with 100 in 1000 s, which is exhausted, and a bucket that is lost then
	s := newScene(t, slow(100), 100*time.Millisecond)
	old := Config{Limits: []Limit{PerSecond(1000)}, TTL: s.config.TTL, Target: s.config.Target}
	s.config.Limits, s.config.Version.Deploy = []Limit{PerSecond(1000), slow(100)}, 1
	a, b := s.holder("a"), s.holder("b")
	s.calls(b, ask{})
	s.draws(a, 100)
	s.bucket = Bucket{}
	// when a process with the older version starts the next one, knowing of the loss, and the newer
	// version comes after it
	s.calls(b, ask{Config: old})
	s.now += 1_060_000
	g := s.calls(a, ask{Want: 100, Waiting: 100})
	// then the limit is not full again
	if g.Waited > 1 {
		t.Errorf("%d more within 1.06 s", g.Waited)
	}
	s.audits()
}
