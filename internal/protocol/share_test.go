package protocol

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// maxMin is the fair division of rate: no holder gets more than it demands, and the rest goes to the others
// by weight.
func maxMin(rate float64, demand, weight []float64) []float64 {
	share := make([]float64, len(demand))
	var open []int
	total := 0.0
	for i := range demand {
		open, total = append(open, i), total+weight[i]
	}
	// The holder that wants least for its weight is served first: what it leaves is the others'.
	slices.SortFunc(open, func(i, j int) int { return cmp.Compare(demand[i]/weight[i], demand[j]/weight[j]) })
	for _, i := range open {
		share[i] = min(demand[i], rate*weight[i]/total)
		rate, total = rate-share[i], total-weight[i]
	}
	return share
}

func TestOverloadIsSharedByWeight(t *testing.T) {
	for _, weights := range [][]float64{{1, 1, 1, 1, 1, 1, 1, 1}, {1, 2, 1, 2, 1, 2, 1, 4}} {
		// given twice the demand that the limit admits, most of it from a few processes
		l := lease.PerSecond(1000).WithBurst(400)
		demands := []float64{20, 50, 100, 150, 280, 300, 500, 600}
		d := newDriver(t, l)
		for i, demand := range demands {
			d.client(lease.Policy{Weight: int64(weights[i])}, l, random(demand, uint64(i)))
		}
		// when it has settled
		d.run(20 * time.Second)
		var before []int64
		for _, n := range d.nodes {
			before = append(before, n.admitted)
		}
		d.run(40 * time.Second)
		// then everybody gets its max-min share, and little is lost
		share := maxMin(1000, demands, weights)
		var got, relative []float64
		total := 0.0
		for i, n := range d.nodes {
			got = append(got, float64(n.admitted-before[i])/40)
			relative = append(relative, got[i]/share[i])
			total += got[i]
		}
		jain := testkit.Jain(relative)
		testkit.Check(t, jain >= 0.999 && slices.Min(relative) >= 0.95,
			"weights %v: Jain's index %.4f\n got %.1f\nfair %.1f", weights, jain, got, share)
		testkit.Check(t, total >= 995, "weights %v: %.1f of 1000/s admitted", weights, total)
	}
}

// TestOnlyTheRatioOfWeightsCounts: holders that all weigh 256 times as much get what they would get with a
// weight of 1, at the same times, to the last token.
func TestOnlyTheRatioOfWeightsCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 72))
	l := lease.PerSecond(500)
	config := lease.Policy{}.ConfigFor([]lease.Limit{l}, 0, 0)
	for range 20 {
		// given 30 holders that call one after another, each with the same luck for either weight
		var plain, heavy Bucket
		now := int64(1_700_000_000_000_000)
		for seq := int64(1); seq <= 2000; seq++ {
			now += r.Int64N(6000)
			want := 1 + r.Int64N(40)
			call := lease.Request{Holder: string(rune('a' + r.IntN(30))), Seq: seq, Config: config, Want: want,
				Waiting: r.Int64N(want + 1), Weight: 1 + r.Int64N(2)}
			if r.IntN(4) == 0 {
				call.Draw, call.Waiting = true, want
			}
			var a, b lease.Grant
			testkit.NoErr(t, plain.Call(now, &call, &a))
			call.Weight *= 256
			testkit.NoErr(t, heavy.Call(now, &call, &b))
			b.ActiveWeight /= 256
			// then the replies are the same
			testkit.Must(t, reflect.DeepEqual(a, b), "call %d: %+v\nwith the larger weights: %+v", seq, a, b)
		}
	}
}

func TestLoneHolderGetsEverything(t *testing.T) {
	d, h := alone(t, lease.PerSecond(1000).WithBurst(400), lease.Policy{}, random(2000, 1))
	d.run(20 * time.Second)
	testkit.Check(t, h.admitted >= 20_400*995/1000, "%d of 20,400", h.admitted)
}

// x/time/rate's TestLongRunningQPS asks the same: 99.9 % of what the limit gives. Missing are the tokens that
// stand in the bucket between two calls, and once, at the start, the refill of up to a Target while the
// bucket counted what was spent as held. So the time is long enough for a Target's refill to be a thousandth.
func TestLongRunAdmitsWhatTheLimitGives(t *testing.T) {
	loads := []float64{5, 1, 1.2, 2}[:testkit.ShortOrLong(t, 2, 4, "loads")/testkit.PlainOrRace(1, 2)]
	for _, l := range []lease.Limit{
		lease.PerSecond(10), lease.PerSecond(30).WithBurst(100), lease.PerSecond(100).WithBurst(5),
		lease.PerSecond(100).WithBurst(50),
		lease.PerSecond(100), lease.PerSecond(100).WithBurst(1000), lease.PerSecond(1000).WithBurst(100),
		lease.PerSecond(1000),
	} {
		for _, load := range loads {
			span := time.Minute
			if load < 2 || l.Tokens < 100 {
				span = 5 * time.Minute
			}
			// given one process that asks at an even pace, as often as the limit allows or more often
			d, h := alone(t, l, lease.Policy{}, steady(load*l.Rate()))
			// when it has gone on for a while
			d.run(span)
			// then it was admitted 99.9 % of the burst and the rate, or of what it asked for
			asked := float64(h.admitted + h.denied + h.waiting)
			want := 0.999 * min(asked, float64(l.Capacity())+span.Seconds()*l.Rate())
			testkit.Check(t, float64(h.admitted) >= want, "%v, %v times the rate: %d admitted, want %.1f",
				l, load, h.admitted, want)
			n := h.callsIn(30 * time.Second)
			testkit.Check(t, float64(n) <= 2*30/h.settings.config.Target.Seconds(),
				"%v, %v times the rate: %d calls in 30 s, Target is %v", l, load, n, h.settings.config.Target)
		}
	}
}

// TestTheTargetInForceKeepsTheBudget: as long as holders may call by the budget, as far as the
// burst goes; and the burst that would do is told.
func TestTheTargetInForceKeepsTheBudget(t *testing.T) {
	for _, x := range []struct {
		holders       int
		burst, budget int64
		want          time.Duration
		wanted        int64
	}{
		{9, 100_000, 0, 100 * time.Millisecond, 0},     // so few calls are worth nothing
		{20, 1000, 0, 125 * time.Millisecond, 0},       // by default an eighth of the burst,
		{12, 100_000, 0, 133333 * time.Microsecond, 0}, // 90 calls a second,
		{20, 100_000, 0, 222222 * time.Microsecond, 0},
		{40, 100_000, 0, 250 * time.Millisecond, 0},  // and a second's T are enough
		{20, 1000, 200, 100 * time.Millisecond, 0},   // as many as make it with the Target
		{20, 1000, 100, 200 * time.Millisecond, 0},   // twice as many
		{20, 1000, 10, 250 * time.Millisecond, 8000}, // 2 s are wanted
		{20, 8000, 10, 2 * time.Second, 0},
		{1, 10_000, 5, 200 * time.Millisecond, 0},
	} {
		// given a bucket of 1000/s that this many holders have called
		var b Bucket
		var g lease.Grant
		config := lease.Policy{CallsPerSecond: x.budget}.ConfigFor(
			[]lease.Limit{lease.PerSecond(1000).WithBurst(x.burst)}, 0, 0)
		for i := range x.holders {
			r := lease.Request{Holder: string(rune('a' + i)), Seq: 1, Config: config, Want: 1, Weight: 1}
			testkit.NoErr(t, b.Call(1_700_000_000_000_000+int64(i), &r, &g))
		}
		// then the Target keeps the budget
		if g.Target != x.want || BurstWanted(&g, 1) != x.wanted {
			t.Errorf("%d holders, burst %d, %d calls/s: Target %v, want %v; burst wanted %d, want %d",
				x.holders, x.burst, x.budget, g.Target, x.want, BurstWanted(&g, 1), x.wanted)
		}
	}
}

// TestAHolderGoesByTheTargetInForce, but where its TTL is explicit by no more than half of that.
func TestAHolderGoesByTheTargetInForce(t *testing.T) {
	for _, x := range []struct {
		ttl, want, proposes time.Duration
	}{
		{0, 500 * time.Millisecond, 2 * time.Second},
		{600 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond},
	} {
		policy := lease.Policy{TTL: x.ttl, CallsPerSecond: 10}
		config := policy.ConfigFor([]lease.Limit{lease.PerSecond(1000)}, 0, 0)
		s := settings{policy: &policy, own: &config, heard: new(Heard)}
		s.follow(&lease.Grant{Status: lease.Status{Config: config}, Target: 500 * time.Millisecond}, 0)
		if got := s.proposal().TTL; s.target != x.want || got != x.proposes {
			t.Errorf("TTL %v: the Target in force is %v, want %v; T is proposed as %v, want %v",
				x.ttl, s.target, x.want, got, x.proposes)
		}
	}
}
