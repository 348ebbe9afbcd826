package protocol

import (
	"errors"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// draws is a bucket of 10 tokens a second with a burst of 10, and its callers.
type draws struct {
	t      *testing.T
	bucket Bucket
	config lease.Config
	clock  int64
	seq    int64
}

func newDraws(t *testing.T) *draws {
	return &draws{t: t, clock: 1_700_000_000_000_000,
		config: lease.Policy{}.ConfigFor([]lease.Limit{lease.PerSecond(10)}, 0, 0)}
}

// draw is a draw of n tokens.
func (d *draws) draw(holder string, n int64) lease.Grant {
	d.t.Helper()
	return d.call(lease.Request{Holder: holder, Draw: true, Want: n, Waiting: n})
}

func (d *draws) call(r lease.Request) (g lease.Grant) {
	d.t.Helper()
	d.seq++
	r.Seq, r.Config, r.Weight = d.seq, d.config, 1
	testkit.NoErr(d.t, d.bucket.Call(d.clock, &r, &g))
	return g
}

func (d *draws) pass(p time.Duration) { d.clock += exact.Micros(p) }

// atRest fails the test unless a store may keep the bucket in the short form, or may not.
func (d *draws) atRest(want bool) {
	d.t.Helper()
	dump := d.bucket.Dump()
	rest := dump.AtRest()
	is := len(dump.Records) == 0 && dump.Held == rest.Held && dump.Weight == rest.Weight &&
		dump.MovedAt == rest.MovedAt && dump.Keep == rest.Keep && dump.ProposedAt == rest.ProposedAt &&
		dump.Share == rest.Share && dump.Created == rest.Created && dump.Frozen == 0
	testkit.Check(d.t, is == want, "at rest: %v, want %v: %+v", is, want, dump)
}

func TestADrawOfABucketAtRestLeavesNoRecord(t *testing.T) {
	// given a bucket without leases
	d := newDraws(t)
	for i := range int64(10) {
		// when its tokens are drawn, one by one
		g := d.draw("a", 1)
		// then each is admitted at once, nothing is held, and there is one less
		testkit.Check(t, g.Granted == 1 && g.Waited == 1 && !g.Void && !g.Short && g.Ledger == 0 &&
			g.ActiveWeight == 1 &&
			g.Levels[0] == 9-i && g.Counter == i+1, "draw %d: %+v", i, g)
		d.atRest(true)
	}
	// and one that falls short is a call like any other, so that it is shared
	g := d.draw("a", 1)
	testkit.Check(t, g.Granted == 0 && g.Short && g.Delay > 0 && g.RetryAfter > 0, "%+v", g)
	d.atRest(false)
	st, err := d.bucket.Configure(d.clock, lease.OpInspect, lease.Config{})
	testkit.Check(t, err == nil && st.Spent == 10 && st.ActiveWeight == 1, "%+v, %v", st, err)
}

func TestADrawBesideLeasesHasARecord(t *testing.T) {
	// given A, who has leased 3 tokens
	d := newDraws(t)
	g := d.call(lease.Request{Holder: "a", Want: 3})
	testkit.Must(t, g.Granted == 3, "%+v", g)
	// when B draws
	g = d.draw("b", 1)
	// then the bucket remembers both
	testkit.Check(t, g.Granted == 1 && g.Ledger == 3 && g.ActiveWeight == 2, "%+v", g)
	testkit.Check(t, len(d.bucket.Dump().Records) == 2, "%+v", d.bucket.Dump().Records)
	d.atRest(false)
	// and once the leases have ended, a draw brings it back to rest
	d.pass(2 * time.Second)
	testkit.Check(t, d.draw("b", 1).Granted == 1, "the second draw")
	d.atRest(true)
}

func TestADrawIsMadeAsItPromises(t *testing.T) {
	d := newDraws(t)
	good := lease.Request{Holder: "a", Seq: 1, Config: d.config, Weight: 1, Draw: true, Want: 2, Waiting: 2}
	testkit.NoErr(t, good.Validate())
	for _, change := range []func(*lease.Request){
		func(r *lease.Request) { r.Remaining = 1 }, func(r *lease.Request) { r.Returned = 1 },
		func(r *lease.Request) { r.Unused = 1 }, func(r *lease.Request) { r.Refund = 1 },
		func(r *lease.Request) { r.Waiting = 1 }, func(r *lease.Request) { r.Want = 1 },
	} {
		bad := good
		change(&bad)
		testkit.Check(t, errors.Is(bad.Validate(), lease.ErrInvalidRequest), "taken: %+v", bad)
	}
}

// TestWhatADrawGaveBackIsWorthWhatWasNotRefilled: tokens that were drawn at rest come back like
// any that were drawn for a request that then was not admitted.
func TestWhatADrawGaveBackIsWorthWhatWasNotRefilled(t *testing.T) {
	// given 6 tokens drawn at rest, and then a lease, which the bucket knows
	d := newDraws(t)
	drawn := d.draw("a", 6)
	g := d.call(lease.Request{Holder: "a", Want: 1, Epoch: drawn.Epoch, Counter: drawn.Counter})
	// when the 6 come back after a fifth of a second, in which 2 were refilled
	d.pass(200 * time.Millisecond)
	g = d.call(lease.Request{Holder: "a", Remaining: 1, Unused: 6, Drawn: drawn.Running, Epoch: g.Epoch,
		Counter: g.Counter})
	// then the level is what it would be without that draw
	testkit.Check(t, !g.Void && g.Levels[0] == 9, "%+v", g)
}
