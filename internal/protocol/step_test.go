package protocol

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A token that is leased ahead of need during a burst is missing to the processes that come last.
func TestABurstInStepIsNotLeftInLeases(t *testing.T) {
	// given eight processes that all ask within the same 2 ms of every second, together for the
	// whole burst
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
	config := n.config
	hear := func(at, level, ledger int64, short bool) time.Duration {
		n.heard.levels[0] = level
		n.gauge(&lease.Grant{Running: at, Ledger: ledger, Short: short, ActiveWeight: 2, Config: config},
			n.heard.running)
		n.heard.running = at
		return n.lasts
	}
	testkit.Check(t, n.lasts == lastsAlways, "before the first reply: %v", n.lasts)
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
	n.heard.replied, n.heard.active = true, 1
	got := hear(1_002_000, 200, 100, false)
	testkit.Check(t, got == lastsAlways, "alone: lasts %v", got)
	// and leases of a fleet whose budget of calls wants longer ones are as long as they can be
	n.heard.active, config.CallsPerSecond = 2, 1
	hear(1_003_000, 900, 100, false)
	got = hear(1_005_000, 200, 100, false)
	testkit.Check(t, got == lastsAlways, "a small budget: lasts %v", got)
}

func TestNoLeaseIsLongerThanTheLevelLasts(t *testing.T) {
	// given a client of a steady 500/s, on a bucket with enough
	d, n := alone(t, lease.PerSecond(1000), lease.Policy{}, steady(500))
	d.run(3 * time.Second)
	whole, ahead := n.ahead(0, 0), n.ahead(0, 2)
	testkit.Check(t, whole > 50 && ahead > 50, "asks for %d, and for %d where two wait", whole, ahead)
	// when the level will have gone after 10 ms
	n.lasts = 10 * time.Millisecond
	// then it asks for no more than is spent until then, and for nothing ahead of who waits
	most := int64(math.Ceil(n.demand.expected(n.lasts) + n.watermark()))
	short, waits := n.ahead(0, 0), n.ahead(0, 2)
	testkit.Check(t, short == most && short < whole/2 && waits == 2,
		"asks for %d, at most %d; %d where two wait", short, most, waits)
}
