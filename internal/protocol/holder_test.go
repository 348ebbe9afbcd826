package protocol

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestSteadyDemandMakesAboutOneCallPerTarget(t *testing.T) {
	// given a limit with room, and a process that uses a tenth of it
	d, h := alone(t, lease.PerSecond(10_000), lease.Policy{}, random(1000, 1))
	// when it has run for a while
	d.run(2 * time.Second)
	denied := h.denied
	d.run(10 * time.Second)
	// then it makes about 1/tau calls a second, never above 2/tau, and serves everybody
	n := h.callsIn(10 * time.Second)
	testkit.Check(t, n >= 70 && n <= 200, "%d calls in ten seconds, 1/tau would be 100", n)
	testkit.Check(t, h.denied == denied, "%d of %d requests denied, with room for ten times as many",
		h.denied-denied, h.admitted)
	// and the next lease is there before the last one is empty
	missed, burnt := h.sizer.lacked(), h.Holder.Account().Burnt
	testkit.Check(t, missed <= h.admitted/200, "%d of %d requests found the pool empty", missed, h.admitted)
	testkit.Check(t, burnt == 0, "%d tokens of leases in use ran out: renewal came too late", burnt)
}

func TestIdleHolderGivesBackAndFallsSilent(t *testing.T) {
	d, h := alone(t, lease.PerSecond(10_000), lease.Policy{}, random(1000, 2))
	d.run(3 * time.Second)
	testkit.Must(t, h.Holder.Pool.Held() > 0, "nothing is held while busy")
	// when the demand ends
	h.arrival = Never
	d.run(time.Second)
	calls := len(h.calls)
	d.run(time.Hour)
	// then everything is given back, at once, and no call follows
	testkit.Check(t, len(h.calls) == calls, "%d calls in an idle hour", len(h.calls)-calls)
	a, ledger := h.Holder.Account(), d.bucket.ring.ledger()
	testkit.Check(t, a.Held == 0 && a.Burnt == 0 && ledger == 0, "idle: %+v, ledger %d", a, ledger)
}

func TestLocallyDeniedRequestsMakeNoCalls(t *testing.T) {
	// given a hundred times the demand that the limit admits
	d, h := alone(t, lease.PerSecond(10).WithBurst(1), lease.Policy{}, random(1000, 3))
	d.run(20 * time.Second)
	// then what the limit has is used, and there is at most one call for each token
	testkit.Check(t, h.admitted >= 195 && h.denied >= 15_000, "admitted %d, denied %d", h.admitted, h.denied)
	testkit.Check(t, len(h.calls) <= 2*int(h.admitted), "%d calls for %d tokens", len(h.calls), h.admitted)
	// and none before the delay of the reply before it has ended
	h.ask()
	testkit.Must(t, h.Denials.until > d.now, "the last shortfall left no delay")
	call, next := h.due(d.now, needs{waiting: 5})
	testkit.Check(t, !call && next <= h.Denials.until, "a call within the delay: %v, next look %v after its end",
		call, next.Sub(h.Denials.until))
}

func TestSlowKeyAsksForExactlyWhatWaits(t *testing.T) {
	// given one request every two seconds
	d, h := alone(t, lease.PerSecond(100), lease.Policy{}, steady(0.5))
	d.run(7 * time.Second)
	for range 5 {
		before := len(h.calls)
		d.run(2 * time.Second)
		calls := len(h.calls) - before
		testkit.Check(t, calls == 1 && h.last.Want == 1 && h.last.Waiting == 1 && h.Holder.Pool.Held() == 0,
			"%d calls for one request, wanting %d with %d waiting; holds %d", calls, h.last.Want, h.last.Waiting,
			h.Holder.Pool.Held())
	}
}

func TestLeaseInUseIsRenewedBeforeItsDeadline(t *testing.T) {
	// given far more tokens than the demand needs, so that no watermark asks for more
	d, h := alone(t, lease.PerSecond(10_000), lease.Policy{MinBatch: 2000}, steady(30))
	d.run(30 * time.Second)
	// then nothing of what is in use runs out
	testkit.Check(t, h.Holder.Account().Burnt == 0, "%+v", h.Holder.Account())
	n := h.callsIn(10 * time.Second)
	testkit.Check(t, n <= 200, "%d calls in ten seconds", n)
}

func TestFallbackModes(t *testing.T) {
	for _, c := range []struct {
		mode        lease.Fallback
		least, most int64 // admitted in ten seconds of outage, of a thousand requests
	}{
		{lease.FallbackDeny, 0, 0}, {lease.FallbackLocalShare, 95, 112}, {lease.FallbackAllowAll, 1000, 1000},
	} {
		// given a process that has the limit to itself
		d, h := alone(t, lease.PerSecond(10), lease.Policy{Fallback: c.mode}, nil)
		// when the store fails and requests go on
		h.degrade()
		admitted := int64(0)
		for range 1000 {
			h.Refuse(1)
			h.ask()
			d.run(10 * time.Millisecond)
			if h.fallback.take(d.now, 1, 1) > 0 {
				admitted++
			}
		}
		// then each mode admits what it says, and owes all of it
		testkit.Check(t, admitted >= c.least && admitted <= c.most, "mode %d admitted %d, want %d to %d", c.mode,
			admitted, c.least, c.most)
		d.down = false
		h.tick = d.now
		d.run(5 * time.Second)
		testkit.Check(t, (admitted == 0 || Reported(h.last.Late, lease.LateDebt) == admitted) && h.Holder.debt == nil,
			"mode %d: admitted %d without a grant, reported %v, %v left", c.mode, admitted, h.last.Late, h.Holder.debt)
	}
}

// The local share is there when fallbackAt says so, also after the holder has taken another id:
// a caller that asks again at that time would otherwise ask for ever.
func TestTheLocalShareIsThereAtTheTimeThatItNames(t *testing.T) {
	// given a holder that is alone, and a store that is away
	d, h := alone(t, lease.PerSecond(1000), lease.Policy{}, nil)
	h.degrade()
	testkit.Must(t, h.fallback.take(d.now, 100, 100) > 0, "the fallback gives nothing")
	// when it goes on under another id and wants nearly all of the share
	h.Holder.rename("other")
	for asked := 0; h.fallback.take(d.now, 990, 990) == 0; asked++ {
		at, ok := h.fallback.at(d.now, 990)
		testkit.Must(t, ok && at > d.now && asked <= 2,
			"refused, and the time to ask again is %v from now (%v), the %d. time", at.Sub(d.now), ok, asked+1)
		d.now = at
	}
	// then it has waited for what was missing
	more, ok := h.fallback.at(d.now, 1001)
	testkit.Check(t, !ok, "more than the burst is there at %v", more)
}

// A token that is leased ahead of need during a burst is missing to the processes that come last.
func TestABurstInStepIsNotLeftInLeases(t *testing.T) {
	// given eight processes that all ask within the same 2 ms of every second, together for the whole burst
	limit := lease.PerSecond(1000)
	d := newDriver(t, limit)
	d.rtt = 200 * time.Microsecond
	const processes, burst = 8, 125
	for i := range processes {
		n := -1
		gap := func() time.Duration {
			if n++; n == 0 {
				return time.Second + time.Duration(i)*time.Microsecond
			}
			if n%burst == 0 {
				return time.Second - (burst-1)*16*time.Microsecond
			}
			return 16 * time.Microsecond
		}
		d.client(lease.Policy{}, limit, gap)
	}
	// when ten bursts have come
	d.run(10*time.Second + 500*time.Millisecond)
	// then nearly all of them are admitted, as by one bucket
	admitted, asked := int64(0), int64(0)
	for _, n := range d.nodes {
		admitted += n.admitted
		asked += n.admitted + n.denied + n.waiting
	}
	testkit.Check(t, asked == 10*processes*burst && float64(admitted) >= 0.99*float64(asked),
		"%d of %d", admitted, asked)
}

func TestALevelLastsAsLongAsItFallsAsBefore(t *testing.T) {
	// given a client that has heard of 1000 tokens, in the bucket and leased
	_, n := alone(t, lease.PerSecond(1000), lease.Policy{}, nil)
	config := n.settings.config
	hear := func(at, level, ledger int64, short bool) time.Duration {
		n.Holder.heard.levels[0] = level
		g := lease.Grant{Running: at, Status: lease.Status{Ledger: ledger, ActiveWeight: 2, Config: config}}
		if short {
			g.Delay = milli
		}
		n.sizer.gauge(&g, n.Holder.heard.running)
		n.Holder.heard.running = at
		return n.sizer.lasts
	}
	testkit.Check(t, n.sizer.lasts == lastsAlways, "before the first reply: %v", n.sizer.lasts)
	hear(1_000_000, 900, 100, false)
	for _, c := range []struct {
		why               string
		at, level, ledger int64
		short             bool
		lasts             time.Duration
	}{
		// then what moves into leases is no fall, and what is spent is one
		{"leased", 1_001_000, 500, 500, false, lastsAlways},
		{"400 fewer in 2 ms", 1_003_000, 200, 400, false, time.Millisecond},
		{"owed", 1_004_000, -5, 300, false, 0},
		{"refilled", 1_005_000, 301, 0, false, lastsAlways},
		{"another bucket's time", 5, 100, 0, false, lastsAlways},
		{"a shortfall", 1_006_000, 0, 0, true, lastsAlways},
	} {
		got := hear(c.at, c.level, c.ledger, c.short)
		testkit.Check(t, got == c.lasts, "%s: lasts %v, want %v", c.why, got, c.lasts)
	}
	// and a holder that is alone may have all of it
	hear(1_000_000, 900, 100, false)
	n.Holder.heard.replied, n.Holder.heard.active = true, 1
	got := hear(1_002_000, 200, 100, false)
	testkit.Check(t, got == lastsAlways, "alone: lasts %v", got)
	// and leases of a fleet whose budget of calls wants longer ones are as long as they can be
	n.Holder.heard.active, config.CallsPerSecond = 2, 1
	hear(1_003_000, 900, 100, false)
	got = hear(1_005_000, 200, 100, false)
	testkit.Check(t, got == lastsAlways, "a small budget: lasts %v", got)
}

func TestNoLeaseIsLongerThanTheLevelLasts(t *testing.T) {
	// given a client of a steady 500/s, on a bucket with enough
	d, n := alone(t, lease.PerSecond(1000), lease.Policy{}, steady(500))
	d.run(3 * time.Second)
	whole, ahead := n.sizer.ahead(0, 0), n.sizer.ahead(0, 2)
	testkit.Check(t, whole > 50 && ahead > 50, "asks for %d, and for %d where two wait", whole, ahead)
	// when the level will have gone after 10 ms
	n.sizer.lasts = 10 * time.Millisecond
	// then it asks for no more than is spent until then, and for nothing ahead of waiting requests
	most := int64(math.Ceil(n.sizer.demand.expected(n.sizer.lasts) + n.sizer.watermark()))
	short, waits := n.sizer.ahead(0, 0), n.sizer.ahead(0, 2)
	testkit.Check(t, short == most && short < whole/2 && waits == 2,
		"asks for %d, at most %d; %d where two wait", short, most, waits)
}

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
			s.bucket.records["h"].Waiting == waiting, "%s: spent %d, denied %d, waiting %d; want %d, %d, %d; %v",
			name, st.Spent, st.Denied, s.bucket.records["h"].Waiting, spent, denied, waiting, err)
	}
	// then what waits is spent when it is granted, also where the call is void
	play("the first call is void", lease.Request{Want: 30, Waiting: 10, Denied: 3, Remaining: 50}, 10, 3, 0)
	play("a retry is counted once", lease.Request{Seq: 1, Want: 30, Waiting: 10, Denied: 3}, 0, 0, 0)
	// what is leased is spent when a report says that it is gone, and was not given back
	play("20 were held, 5 are left", lease.Request{Remaining: 5, Returned: 3, Late: oneLate(lease.LateUnused, 2)}, 10, 0, 0)
	play("a refund was spent before", lease.Request{Remaining: 5, Late: oneLate(lease.LateRefund, 4)}, 0, 0, 0)
	play("more unused than held", lease.Request{Remaining: 5, Late: oneLate(lease.LateUnused, 9)}, 0, 0, 0)
	// what was admitted without tokens is spent
	play("debt and charge", lease.Request{Remaining: 5, Late: []lease.Late{
		{Kind: lease.LateDebt, Tokens: 2}, {Kind: lease.LateCharge, Tokens: 7}}, Denied: 5}, 9, 5, 0)
	heard.Counter = 0
	play("a void report says nothing", lease.Request{Remaining: 1}, 0, 0, 0)
	// and what is not granted is waited for
	play("waiting", lease.Request{Want: 500, Waiting: 500, Need: 400, Denied: 2}, 0, 2, 500)
	play("some of it is granted", lease.Request{Want: 500, Waiting: 500}, heard.Levels[0], 0,
		500-heard.Levels[0])
	// A count goes on from 0 after 2^52 - 1, so that differences stay right.
	play("as many as can be", lease.Request{Denied: lease.WaitingMax, Late: []lease.Late{
		{Kind: lease.LateDebt, Tokens: lease.WaitingMax}, {Kind: lease.LateCharge, Tokens: lease.WaitingMax}}},
		lease.WaitingMax-exact.MaxUnits, lease.WaitingMax-exact.MaxUnits, 0)
	// A change or a reset of the limits leaves the counters alone.
	s.sets(s.config)
	st, err := s.bucket.Configure(s.now, lease.OpReset, lease.Config{})
	testkit.Check(t, err == nil && st.Spent == spent && st.Denied == denied, "%+v, %v", st, err)
}

// The denials of a client travel with the next call that is made anyway (no call is made for it:
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
	open := n.Denials.attributed - n.Denials.reported
	testkit.Check(t, d.bucket.denied == n.Denials.reported && n.Denials.reported > 800 && n.Denials.reported+open <= n.denied &&
		open < 50,
		"counted %d, told %d and %d to come, denied %d", d.bucket.denied, n.Denials.reported, open, n.denied)
	testkit.Check(t, d.bucket.spent <= n.admitted && n.admitted-d.bucket.spent <= 10, "counted %d, admitted %d",
		d.bucket.spent, n.admitted)
	// when calls fail, what they carried is lost, and not told again
	d.down = true
	told = n.Denials.reported
	d.run(30 * time.Second)
	lost := n.Denials.reported - told
	testkit.Check(t, n.Failures.Degraded() && lost > 0 && d.bucket.denied == told, "lost %d, counted %d", lost,
		d.bucket.denied-told)
	d.down = false
	look(len(n.calls))
	testkit.Check(t, d.bucket.denied == n.Denials.reported-lost, "counted %d, told %d of which %d are lost",
		d.bucket.denied,
		n.Denials.reported, lost)
}
