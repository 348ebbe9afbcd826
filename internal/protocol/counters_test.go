package protocol

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// The counters that an operator reads: spent and denied of the bucket (docs/protocol.md 3.5), and
// what a holder's requests still wait for (3.6).

func TestTheBucketCountsWhatIsReported(t *testing.T) {
	// given a full bucket of 100
	s := newScene(t, lease.PerSecond(1).WithBurst(100), time.Second)
	var seq, spent, denied int64
	var heard lease.Grant
	play := func(name string, r lease.Request, nowSpent, nowDenied, waiting int64) {
		t.Helper()
		r.Holder, r.Config, r.Weight, r.Epoch, r.Counter = "h", s.config, 1, heard.Epoch, heard.Counter
		if r.Seq == 0 {
			seq++
			r.Seq = seq
		}
		heard = s.executes(r)
		spent, denied = spent+nowSpent, denied+nowDenied
		st, err := s.bucket.Configure(s.now, lease.OpInspect, lease.Config{})
		testkit.Must(t, err == nil && st.Spent == spent && st.Denied == denied &&
			s.bucket.records["h"].waiting == waiting, "%s: spent %d, denied %d, waiting %d; want %d, %d, %d; %v",
			name, st.Spent, st.Denied, s.bucket.records["h"].waiting, spent, denied, waiting, err)
	}
	// then what waits is spent when it is granted, also where the call is void
	play("the first call is void", lease.Request{Want: 30, Waiting: 10, Denied: 3, Remaining: 50}, 10, 3, 0)
	play("a retry is counted once", lease.Request{Seq: 1, Want: 30, Waiting: 10, Denied: 3}, 0, 0, 0)
	// what is leased is spent when a report says that it is gone, and was not given back
	play("20 were held, 5 are left", lease.Request{Remaining: 5, Returned: 3, Unused: 2}, 10, 0, 0)
	play("a refund was spent before", lease.Request{Remaining: 5, Refund: 4}, 0, 0, 0)
	play("more unused than held", lease.Request{Remaining: 5, Unused: 9}, 0, 0, 0)
	// what was admitted without tokens is spent
	play("debt and charge", lease.Request{Remaining: 5, Debt: 2, Charge: 7, Denied: 5}, 9, 5, 0)
	heard.Counter = 0
	play("a void report says nothing", lease.Request{Remaining: 1}, 0, 0, 0)
	// and what is not granted is waited for
	play("waiting", lease.Request{Want: 500, Waiting: 500, Need: 400, Denied: 2}, 0, 2, 500)
	play("some of it is granted", lease.Request{Want: 500, Waiting: 500}, heard.Levels[0], 0,
		500-heard.Levels[0])
	// A count goes on from 0 after 2^52 - 1, so that differences stay right.
	play("as many as can be", lease.Request{Denied: lease.WaitingMax, Debt: lease.WaitingMax,
		Charge: lease.WaitingMax},
		lease.WaitingMax-exact.MaxUnits, lease.WaitingMax-exact.MaxUnits, 0)
	// A change or a reset of the limits leaves the counters alone.
	s.sets(s.config)
	st, err := s.bucket.Configure(s.now, lease.OpReset, lease.Config{})
	testkit.Check(t, err == nil && st.Spent == spent && st.Denied == denied, "%+v, %v", st, err)
}

// What a client denies travels with the next call that is made anyway (no call is made for it:
// TestLocallyDeniedRequestsMakeNoCalls), in that one only. Its admissions are counted as spent.
func TestDenialsTravelInOneCall(t *testing.T) {
	// given a process that is asked for ten times what it may
	d, n := alone(t, lease.PerSecond(10), lease.Policy{}, steady(100))
	told := int64(0)
	look := func(from int) {
		t.Helper()
		d.run(10 * time.Second)
		testkit.Check(t, len(n.calls) > from+10, "%d calls", len(n.calls)-from)
	}
	look(0)
	// then the bucket knows all denials but those since the last call, and all that was admitted but
	// what the last call did not know
	open := n.attributed - n.deniedTold
	testkit.Check(t, d.bucket.denied == n.deniedTold && n.deniedTold > 800 && n.deniedTold+open <= n.denied &&
		open < 50,
		"counted %d, told %d and %d to come, denied %d", d.bucket.denied, n.deniedTold, open, n.denied)
	testkit.Check(t, d.bucket.spent <= n.admitted && n.admitted-d.bucket.spent <= 10, "counted %d, admitted %d",
		d.bucket.spent, n.admitted)
	// when calls fail, what they carried is lost, and not told again
	d.down = true
	told = n.deniedTold
	d.run(30 * time.Second)
	lost := n.deniedTold - told
	testkit.Check(t, n.Degraded() && lost > 0 && d.bucket.denied == told, "lost %d, counted %d", lost,
		d.bucket.denied-told)
	d.down = false
	look(len(n.calls))
	testkit.Check(t, d.bucket.denied == n.deniedTold-lost, "counted %d, told %d of which %d are lost",
		d.bucket.denied,
		n.deniedTold, lost)
}
