package planner

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// estimates are Estimates by their figure, for processes that are alike.
func estimates(s sim.Scenario, tokensPerS float64) map[string]Estimate {
	all := map[string]Estimate{}
	for _, e := range Estimates(s.Defaults(), tokensPerS, nil) {
		all[e.Figure] = e
	}
	return all
}

func near(x, want float64) bool { return math.Abs(x-want) <= 1e-9*math.Max(1, math.Abs(want)) }

func TestClosedFormsByHand(t *testing.T) {
	// Given 10 processes with 100 requests/s each, a target of 99 ms and a round trip of 1 ms: 10 requests in a lease,
	s := sim.Scenario{
		Duration: 10 * time.Second,
		Limits:   []lease.Limit{lease.PerSecond(2000).WithBurst(1000)},
		Policy:   lease.Policy{Target: 99 * time.Millisecond},
		Groups:   []sim.Group{{Count: 10}},
		Redis:    sim.Redis{ServiceTime: sim.Constantly(20 * time.Microsecond)},
	}
	all := estimates(s, 1000)
	// then each process calls once in 100 ms, to once in that and 6*sqrt(0.1/100) s;
	if e := all["calls_per_s"]; !near(e.High, 100) || !near(e.Low, 10/(0.1+6*math.Sqrt(0.001))) {
		t.Errorf("%+v", e)
	}
	if e := all["redis_cpu"]; !near(e.High, 100*20e-6) || !near(e.Low, all["calls_per_s"].Low*20e-6) {
		t.Errorf("%+v", e)
	}
	// each holds half of 9.9 tokens, to half of 10 and 3*sqrt(10), and a watermark of 0.1 + 3*sqrt(0.1) + 1;
	high := 10 * (5 + 1.5*math.Sqrt(10) + 0.1 + 3*math.Sqrt(0.1) + 1)
	if e := all["stranded"]; !near(e.Low, 49.5) || !near(e.High, high) {
		t.Errorf("%+v, want up to %v", e, high)
	}
	// at half the rate the bucket, without what is stranded, denies exp(-2(burst)) of the requests: none;
	if e := all["false_reject_ratio"]; e.Low != 0 || e.High != 0 {
		t.Errorf("%+v", e)
	}
	// and a cold start waits for a round trip and ten calls.
	if e := all["wait_ms_p99"]; e.Low != 0 || !near(e.High, 1.2) {
		t.Errorf("%+v", e)
	}

	// Given a small burst, then what is stranded is missed, and no more than there is;
	s.Limits[0].Burst = 100
	all = estimates(s, 1800)
	b := 100 - all["stranded"].High
	if want := math.Exp(-2*0.1*b/0.9) - math.Exp(-2*0.1*100/0.9); !near(all["false_reject_ratio"].High, want) {
		t.Errorf("%+v, want %v", all["false_reject_ratio"], want)
	}
	if f, a := all["false_reject_ratio"], all["admitted_vs_central"]; !near(a.Low, 1-f.High) || !near(a.High, 1-f.Low) {
		t.Errorf("%+v and %+v", f, a)
	}
	// unless an overcommit makes up for it.
	s.Policy.Overcommit = 200
	if e := estimates(s, 1800)["false_reject_ratio"]; e.High != 0 {
		t.Errorf("with overcommit %+v", e)
	}
	s.Policy.Overcommit = 0
	// Given twice the rate, then what is stranded at the end is lost, of all that was there.
	all = estimates(s, 4000)
	if want := all["stranded"].High / (100 + 2000*10); !near(all["false_reject_ratio"].High, want) {
		t.Errorf("%+v, want %v", all["false_reject_ratio"], want)
	}
}

func TestClosedFormsUnderOverloadByHand(t *testing.T) {
	// Given four processes that ask for 400 tokens/s each of 800/s, and a target of 100 ms,
	s := sim.Scenario{
		Duration: 10 * time.Second,
		Limits:   []lease.Limit{lease.PerSecond(800).WithBurst(2000)},
		Policy:   lease.Policy{Target: 100 * time.Millisecond},
		Groups:   []sim.Group{{Count: 4}},
	}
	all := estimates(s, 1600)
	// then each calls from once in two targets to twice in one,
	if e := all["calls_per_s"]; !near(e.Low, 20) || !near(e.High, 80) {
		t.Errorf("%+v", e)
	}
	// and holds what 200 tokens/s earn in 50 to 200 ms for half of the half of that time in which it spends it.
	if e := all["stranded"]; !near(e.Low, 4*10*0.5*0.5) || !near(e.High, 4*40*0.5*0.5) {
		t.Errorf("%+v", e)
	}
	// Two such keys lose the same part of twice as much.
	lost := all["false_reject_ratio"].High
	s.Keys.Count = 2
	if e := estimates(s, 3200)["false_reject_ratio"]; !near(e.High, lost) || lost == 0 {
		t.Errorf("%+v, one key %v", e, lost)
	}
	s.Keys.Count = 1
	// Given a share that earns a token in a second, then nobody calls more often for long.
	s.Limits[0] = lease.PerSecond(4).WithBurst(2000)
	if e := estimates(s, 1600)["calls_per_s"]; !near(e.Low, 4) || !near(e.High, 80) {
		t.Errorf("%+v", e)
	}
}

func TestTheShareIsMaxMin(t *testing.T) {
	members := []part{{2, 0.05}, {3, 0.1}, {1, 0.6}} // of 100: 5, 5, 10, 10, 10, 60
	for rate, want := range map[float64]float64{101: math.Inf(1), 100: math.Inf(1), 70: 30, 50: 10, 39: 29.0 / 4, 30: 5, 12: 2} {
		if got := level(members, 100, rate); !near(got, want) && got != want {
			t.Errorf("at %v: %v, want %v", rate, got, want)
		}
	}
}

func TestSlowKeysCallPerRequestAndStrandNothing(t *testing.T) {
	// Given ten keys with a request in 10 s each at each of two processes,
	s := sim.Scenario{
		Limits: []lease.Limit{lease.PerSecond(100)},
		Keys:   sim.Keys{Count: 10},
		Groups: []sim.Group{{Count: 2}},
	}
	all := estimates(s, 2)
	if e := all["calls_per_s"]; !near(e.Low, 2) || !near(e.High, 2) {
		t.Errorf("%+v", e)
	}
	if e := all["stranded"]; e.Low != 0 || e.High != 0 {
		t.Errorf("%+v", e)
	}
	// Tokens are not requests: at three a request there are a third as many calls.
	s.Workload.Cost = sim.Cost{Min: 1, Max: 5}
	if e := estimates(s, 2)["calls_per_s"]; !near(e.High, 2.0/3) {
		t.Errorf("%+v", e)
	}
}

func TestKeysAreTakenTogetherWithoutLosingAny(t *testing.T) {
	for _, k := range []sim.Keys{{Count: 1}, {Count: 32}, {Count: 33}, {Count: 1000, Zipf: 1}, {Count: 1_000_000, Zipf: 0.8}, {Count: 1_000_000}} {
		count, share := 0.0, 0.0
		for _, p := range keyParts(k) {
			count += p.count
			share += p.count * p.share
		}
		if int(count) != k.Count || !near(share, 1) || len(keyParts(k)) > 2*partsMax {
			t.Errorf("%+v: %v keys with %v of the load in %d parts", k, count, share, len(keyParts(k)))
		}
	}
	// The most popular of 1000 keys with Zipf 1 has 1/H(1000) = 1/7.4855 of the load.
	if got := keyParts(sim.Keys{Count: 1000, Zipf: 1})[0].share; math.Abs(got*7.4855-1) > 0.02 {
		t.Errorf("the first has %v", got)
	}
}

func TestProcessesAreTakenTogetherByTheirDemand(t *testing.T) {
	var members []float64
	for i := range 1000 {
		members = append(members, float64(i+1)/500500)
	}
	count, share := 0.0, 0.0
	parts := processParts(sim.Scenario{}, load{members: members})
	for i, p := range parts {
		count += p.count
		share += p.count * p.share
		if i > 0 && p.share <= parts[i-1].share {
			t.Errorf("part %d is %+v after %+v", i, p, parts[i-1])
		}
	}
	if count != 1000 || !near(share, 1) || len(parts) != partsMax {
		t.Errorf("%v processes with %v of the load in %d parts", count, share, len(parts))
	}
}

func TestPercentilesOfEveryDistribution(t *testing.T) {
	for text, want := range map[string]float64{
		"5ms":                5e6,
		"uniform(0s,100ms)":  99e6,
		"normal(10ms,1ms)":   12.326e6,
		"exp(1ms)":           math.Log(100) * 1e6,
		"lognormal(1ms,7ms)": 7e6,
		"pareto(1ms,2)":      10e6,
	} {
		var d sim.DurationDist
		if err := d.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := percentile99(d); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// The closed forms are of the leases that are simulated: where they claim most, a busy fleet with room, they hold.
func TestTheSimulationAgreesWithTheClosedForms(t *testing.T) {
	s := sim.Scenario{
		Duration: 6 * time.Second, Warmup: 3 * time.Second, Reps: 2,
		Limits: []lease.Limit{lease.PerSecond(20000).WithBurst(8000)},
		Groups: []sim.Group{{Count: 20}},
	}.Defaults()
	for _, target := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
		for _, load1 := range []float64{0.5, 0.9, 2} {
			s.Policy.Target, s.Workload.Load = target, load1
			r, err := sim.Runner{}.Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			l := loadOf(&r)
			for _, e := range Estimates(s, l.tokensPerS, l.members) {
				for _, f := range r.Figures.All() {
					if f.Name != e.Figure {
						continue
					}
					t.Logf("target %v, load %v: %s is %.4g, estimated %.4g to %.4g", target, load1, e.Figure, f.Mean, e.Low, e.High)
					// A fifth of room: the forms are rough.
					if f.Mean < e.Low*0.8 || f.Mean > e.High*1.2+0.001 {
						t.Errorf("target %v, load %v: %s is %v, estimated %v to %v", target, load1, e.Figure, f.Mean, e.Low, e.High)
					}
				}
			}
		}
	}
}
