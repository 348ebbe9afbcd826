package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// truth is one process's load and network, for both worlds.
type truth struct {
	name     string
	limits   []lease.Limit
	policy   lease.Policy
	trip     time.Duration
	verb     string
	deadline time.Duration
	rate     float64
	cost     int64
	hangs    [2]time.Duration // the store does not answer from, until
	span     time.Duration
}

var truths = []truth{
	{name: "light", limits: limits(lease.PerSecond(1000)), trip: time.Millisecond, rate: 300, span: 5 * time.Second},
	{name: "overload", limits: limits(lease.PerSecond(1000).WithBurst(200)), trip: time.Millisecond, rate: 2500, span: 5 * time.Second},
	{name: "slow network", limits: limits(lease.PerSecond(500).WithBurst(500)), trip: 60 * time.Millisecond, rate: 450, span: 10 * time.Second},
	{name: "slow key", limits: limits(lease.PerSecond(100)), trip: 2 * time.Millisecond, rate: 3, span: 30 * time.Second},
	{name: "try", limits: limits(lease.PerSecond(300).WithBurst(60)), trip: time.Millisecond, verb: scenario.VerbTry, rate: 900, span: 5 * time.Second},
	{name: "wait", limits: limits(lease.PerSecond(100).WithBurst(20)), trip: time.Millisecond, verb: scenario.VerbWait, deadline: 400 * time.Millisecond, rate: 150, span: 5 * time.Second},
	{name: "many tokens", limits: limits(lease.PerSecond(1000).WithBurst(300), lease.PerMinute(50_000).WithBurst(2000)), trip: time.Millisecond, rate: 200, cost: 7, span: 5 * time.Second},
	{name: "outage", limits: limits(lease.PerSecond(1000)), policy: deny, trip: time.Millisecond, rate: 600,
		hangs: [2]time.Duration{2 * time.Second, 4 * time.Second}, span: 8 * time.Second},
	{name: "outage, local share", limits: limits(lease.PerSecond(1000)), trip: time.Millisecond, rate: 600,
		hangs: [2]time.Duration{2 * time.Second, 4 * time.Second}, span: 8 * time.Second},
}

// TestOneProcessIsGrantedWhatHybridIs: the same requests at the same moments, in the simulator and
// in a hybrid limiter on fake time, make the same lease calls at the same moments and bring the
// same grants.
func TestOneProcessIsGrantedWhatHybridIs(t *testing.T) {
	for _, c := range truths {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(10) {
				moments := c.moments(seed)
				real, simulated := c.real(t, moments), c.simulate(t, moments)
				if len(real.calls) < 5 {
					t.Fatalf("%d calls: nothing is compared", len(real.calls))
				}
				got, want := append(simulated.calls, "none"), append(real.calls, "none")
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("seed %d, call %d of %d:\nhybrid     %s\nsimulated  %s\nbefore:    %s", seed, i,
							len(real.calls), want[i], got[i], want[max(i-1, 0)])
					}
				}
				// The first probe after an outage comes at a random moment within a TTL, and the
				// one before may just have begun: what that is worth.
				slack := int64(0)
				if c.hangs[1] > 0 {
					slack = int64(c.rate * (c.policy.ConfigFor(c.limits, 1, 0).TTL + lease.DefaultCallTimeout).Seconds())
				}
				if d := real.admitted - simulated.admitted; max(d, -d) > slack {
					t.Fatalf("seed %d: hybrid admitted %d, the simulator %d", seed, real.admitted, simulated.admitted)
				}
				t.Logf("seed %d: %d calls, %d admitted (%d simulated)", seed, len(real.calls), real.admitted, simulated.admitted)
			}
		})
	}
}

// outcomes are what one of the worlds showed.
type outcomes struct {
	calls    []string
	last     int64 // seq: hybrid's rises by steps of its own, so only whether it rose is compared
	admitted int64
	until    time.Duration // what comes later is not compared
}

func (o *outcomes) executed(now time.Duration, r *lease.Request, g *lease.Grant) {
	if now >= o.until {
		return
	}
	o.calls = append(o.calls, fmt.Sprintf("at %v retry %v remaining %d returned %d refund %d debt %d want %d need %d waiting %d: "+
		"granted %d waited %d delay %v void %v", now, r.Seq == o.last, r.Remaining, r.Returned, r.Refund, r.Debt,
		r.Want, r.Need, r.Waiting, g.Granted, g.Waited, g.Delay, g.Void))
	o.last = r.Seq
}

// moments are Poisson, but never two in one microsecond, where the order of goroutines would
// decide.
func (c truth) moments(seed uint64) (at []time.Duration) {
	rnd := rand.New(rand.NewPCG(seed, 5))
	for now := time.Duration(0); ; {
		now += time.Duration(rnd.ExpFloat64()/c.rate*1e9).Truncate(time.Microsecond) + 3*time.Microsecond + 137
		if now >= c.span {
			return at
		}
		at = append(at, now)
	}
}

// until is how long every call is compared. Where the store fails, each limiter probes at random
// moments of its own.
func (c truth) until() time.Duration {
	if c.hangs[1] > 0 {
		return c.hangs[0]
	}
	return c.span
}

func (c truth) hanging(now time.Duration) bool { return now >= c.hangs[0] && now < c.hangs[1] }

// store is one bucket behind a network.
type store struct {
	lease.Store // for what is not used
	truth
	*outcomes
	began  time.Time
	bucket lease.Bucket
}

func (s *store) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	time.Sleep(s.trip / 2)
	now := time.Since(s.began)
	if s.hanging(now) {
		<-ctx.Done()
		for _, c := range calls {
			c.Err = lease.ErrUnavailable
		}
		done(calls)
		return
	}
	for _, c := range calls {
		c.Node = 0
		if c.Err = s.bucket.Call(serverStart+now.Microseconds(), &c.Request, &c.Grant); c.Err == nil {
			s.executed(now, &c.Request, &c.Grant)
		}
	}
	time.Sleep(s.trip - s.trip/2)
	done(calls)
}

// real is what a hybrid limiter does.
func (c truth) real(t *testing.T, moments []time.Duration) (o outcomes) {
	o.until = c.until()
	synctest.Test(t, func(t *testing.T) {
		s := &store{truth: c, outcomes: &o, began: time.Now()}
		l, err := hybrid.New(s, hybrid.Config{Limits: c.limits, Policy: c.policy, Version: 1})
		if err != nil {
			t.Fatal(err)
		}
		key := l.Key("k")
		admitted := make(chan int64, len(moments))
		for _, at := range moments {
			time.Sleep(time.Until(s.began.Add(at)))
			go func() {
				if c.asks(key) {
					admitted <- max(c.cost, 1)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Until(s.began.Add(c.span)))
		l.Close()
		synctest.Wait()
		close(admitted)
		for n := range admitted {
			o.admitted += n
		}
		time.Sleep(time.Minute)
	})
	return o
}

func (c truth) asks(key *hybrid.Key) bool {
	switch c.verb {
	case scenario.VerbTry:
		return key.TryAllow()
	case scenario.VerbWait:
		ctx, cancel := context.WithTimeout(context.Background(), c.deadline)
		defer cancel()
		return key.WaitN(ctx, max(c.cost, 1)) == nil
	}
	return key.AllowN(max(c.cost, 1))
}

// simulate is what the simulator does.
func (c truth) simulate(t *testing.T, moments []time.Duration) (o outcomes) {
	o.until = c.until()
	s := scenario.Scenario{
		Duration: c.span, Limits: c.limits, Policy: c.policy, Network: scenario.Network{RoundTrip: scenario.Constantly(c.trip)},
		Workload: replay(len(moments), func(i int) scenario.TraceRequest { return scenario.TraceRequest{At: moments[i], Cost: max(c.cost, 1)} }),
		Redis:    scenario.Redis{ServiceTime: scenario.DurationDist{Dist: uniform(0, 0)}}, // none, which is not the default
	}
	s.Workload.Verb, s.Workload.Deadline = c.verb, c.deadline
	if c.hangs[1] > 0 {
		s.Redis.Faults = []scenario.RedisFault{{Kind: scenario.FaultHang, At: c.hangs[0], For: c.hangs[1] - c.hangs[0]}}
	}
	run := simulate(t, s, func(run *replication, c *call) { o.executed(time.Duration(run.time.now), &c.request, &c.grant) })
	o.admitted = run.books.tally.Admitted
	return o
}
