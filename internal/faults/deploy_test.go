package faults

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// deployment is a fleet under load whose processes are replaced by others with other limits. It
// records the limits that every executed call proposed and found in force.
type deployment struct {
	*fleet
	t       *testing.T
	process func() lease.Store // of one process more
	clock   func() time.Time   // the bucket's
	ttl     time.Duration

	mu    sync.Mutex
	sent  map[*lease.Call]time.Duration
	calls []executedCall
}

// executedCall is one call that the bucket has executed.
type executedCall struct {
	lease.Grant
	proposed, inForce hybrid.Limit
	sent, answered    time.Duration // fleet.now
}

// instance is one process of a deployment, under load.
type instance struct {
	*hybrid.Limiter
	load *load
}

// deployOnRedis runs on its own server. A machine that stalls for less than 2T changes no limit.
func deployOnRedis(t *testing.T) *deployment {
	s := start(t)
	return &deployment{fleet: s.fleet(0, with(busy, strict)), t: t, ttl: 2 * time.Second, clock: s.time,
		process: func() lease.Store { return s.process() }, sent: map[*lease.Call]time.Duration{}}
}

// deployInMemory runs in virtual time, on the reference bucket.
func deployInMemory(t *testing.T) *deployment {
	w := newWire(always(time.Millisecond))
	return &deployment{fleet: newFleet(t, with(busy, strict)), t: t, ttl: 400 * time.Millisecond,
		clock: time.Now, process: func() lease.Store { return w }, sent: map[*lease.Call]time.Duration{}}
}

// add starts a process with its own client and Store, and returns when its first call has been answered.
func (d *deployment) add(limit hybrid.Limit, version int64) *instance {
	d.t.Helper()
	// A machine that stalls is no outage, and spends no lease late.
	policy := strict
	policy.TTL = d.ttl
	cfg := with(limit, policy)
	cfg.Version, cfg.CallTimeout = version, time.Minute
	l := d.fleet.add(cfg, d.process())
	tap := d.taps[len(d.taps)-1]
	tap.onCall = func(c *lease.Call) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.sent[c] = d.now()
	}
	tap.onAnswer = func(c *lease.Call) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if c.Err == nil {
			d.calls = append(d.calls, executedCall{c.Grant, c.Request.Config.Limits[0], c.Grant.Config.Limits[0],
				d.sent[c], d.now()})
		}
		delete(d.sent, c)
	}
	p := &instance{l, d.loadOn([]*hybrid.Limiter{l}, key, 150)}
	testkit.Eventually(d.t, "a call of the new process", func() bool { return tap.counts().answered() > 0 })
	return p
}

// end ends a process. If gracefully, it gives its tokens back.
func (p *instance) end(t testing.TB, gracefully bool) {
	t.Helper()
	p.load.stop()
	if gracefully {
		testkit.NoErr(t, p.Shutdown(context.Background()))
	} else {
		p.Close()
	}
}

// inOrder returns the executed calls from number from on, in the order of the bucket.
func (d *deployment) inOrder(from int) []executedCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := slices.Clone(d.calls)
	slices.SortFunc(calls, func(a, b executedCall) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Counter, b.Counter))
	})
	return calls[from:]
}

// replace deploys limit in place of the processes in old: one by one a new process starts and an old one
// ends. Before it returns the new limit must be in force at every process. The bucket must have gone over to
// it with one call, and not gone back. With the same version that call comes when no process has called for
// the old limit for more than 2T, and any call later than 2T after the end of the last old process finds the
// new limit in force; with a higher version it is the first that proposes it.
func (d *deployment) replace(old []*instance, limit hybrid.Limit, version int64, higher bool) []*instance {
	t, first := d.t, len(d.inOrder(0))
	t.Helper()
	var next []*instance
	for i, p := range old {
		next = append(next, d.add(limit, version))
		d.awaitAdmitted(key, 25)
		p.end(t, i%2 == 0)
	}
	ended := d.clock().UnixMicro()
	for _, p := range next {
		testkit.Eventually(t, "the new limit at every process", func() bool {
			r, err := p.Take(t.Context(), key, 0)
			return err == nil && r.Limit == limit
		})
	}

	calls := d.inOrder(first)
	change := slices.IndexFunc(calls, func(c executedCall) bool { return c.inForce == limit })
	testkit.Must(t, change >= 0, "no call found %v in force", limit)
	last, longest := calls[max(0, change-1)].Config.TTL, time.Duration(0) // a slow machine stretches T
	for _, c := range calls[:change] {
		longest = max(longest, c.Config.TTL)
	}
	span, stood := 2*longest.Microseconds(), int64(0)
	for i, c := range calls {
		testkit.Check(t, (i >= change) == (c.inForce == limit),
			"call %d: %v is in force, after a change at call %d", i, c.inForce, change)
		testkit.Check(t, c.ServerTime <= ended+span || c.inForce == limit,
			"%v is in force %d us after the last old process has ended", c.inForce, c.ServerTime-ended)
		if c.proposed != limit && i < change {
			stood = c.ServerTime
		}
		testkit.Check(t, !higher || i >= change || c.proposed != limit,
			"call %d with a higher version changed nothing", i)
	}
	since := calls[change].ServerTime - stood
	testkit.Check(t, higher || since > 2*last.Microseconds(),
		"the limit changed %d us after a call for the one before", since)
	t.Logf("%v: in force %.3f s after the last old process, %.3f s after the last call for the old limit; "+
		"%d calls", limit, float64(calls[change].ServerTime-ended)/1e6, float64(since)/1e6, len(calls))
	return next
}

// era is a time in which one limit was in force. Its start lies between two readings of fleet.now.
type era struct {
	limit        hybrid.Limit
	after, until time.Duration
	settled      time.Duration // the longest lease of the limit before has ended
}

// eras returns the eras in the record.
func (d *deployment) eras() (all []era) {
	for _, c := range d.inOrder(0) {
		if len(all) == 0 || all[len(all)-1].limit != c.inForce {
			all = append(all, era{c.inForce, c.sent, c.answered, c.answered + c.LeaseMax})
		}
	}
	all[0].after, all[0].until, all[0].settled = 0, 0, 0
	return all
}

// refill returns the tokens, in billionths, that the limits in force made until at. The faster
// limit counts during a change.
func refill(eras []era, at time.Duration) (sum int64) {
	for i, e := range eras {
		from, to, rate := e.until, at, e.limit.Tokens
		if i+1 < len(eras) {
			to = min(to, eras[i+1].after)
		}
		sum += int64(max(0, to-from)) * rate
		if i > 0 {
			sum += int64(max(0, min(at, e.until)-e.after)) * max(rate, eras[i-1].limit.Tokens)
		}
	}
	return sum
}

// burst returns the burst of a window that begins at at (docs/protocol.md section 1): that of the
// limit in force, plus the previous one while its leases may be spent.
func burst(eras []era, at time.Duration) int64 {
	most := eras[0].limit.Capacity()
	for i, e := range eras[1:] {
		switch before := eras[i].limit.Capacity(); {
		case at >= e.settled:
			most = e.limit.Capacity()
		case at >= e.after:
			most = max(before, e.limit.Capacity())
		}
	}
	return most
}

// checkAcross is oracle W across changes of limits: it holds every window against the burst that
// is in force when it begins, and the rates while it lasts. Every limit is per second.
func (d *deployment) checkAcross() {
	d.t.Helper()
	const token = int64(time.Second) // refill counts in billionths
	eras := d.eras()
	d.fleet.mu.Lock()
	defer d.fleet.mu.Unlock()
	admitted := slices.DeleteFunc(slices.Clone(d.decisions[key]), func(d decision) bool { return !d.ok })
	slices.SortFunc(admitted, func(a, b decision) int { return cmp.Compare(a.after, b.after) })
	refilled := make([]int64, len(admitted))
	for i, a := range admitted {
		refilled[i] = refill(eras, a.after+time.Microsecond) // the bucket's clock is that coarse
	}
	testkit.Must(d.t, len(admitted) > 1000, "%d admissions: the audit says nothing", len(admitted))
	for _, begin := range admitted {
		n, may := int64(0), burst(eras, begin.before)*token-refill(eras, begin.before)
		for i, a := range admitted {
			if a.before < begin.before {
				continue
			}
			if n++; n*token > may+refilled[i] {
				d.t.Fatalf("%d admitted in the %v from %v on, %d are allowed", n, a.after-begin.before, begin.before,
					(may+refilled[i])/token)
			}
		}
	}
	d.t.Logf("%d admissions in %d eras keep the promise", len(admitted), len(eras))
}

// rollout holds the versions and limits of a deploy and its rollback.
type rollout struct {
	before, deployed, rolledBack int64
	from, to                     hybrid.Limit
}

// TestRow34ARollingDeployAndItsRollbackTakeEffectOnce: ten processes are replaced by ten with other limits,
// and those again by ten with the limits of before. Both times the limits in force change once.
func TestRow34ARollingDeployAndItsRollbackTakeEffectOnce(t *testing.T) {
	large, small := hybrid.PerSecond(500).WithBurst(400), hybrid.PerSecond(200).WithBurst(50)
	each(t, map[string]rollout{
		"no version, lowered":         {0, 0, 0, large, small},
		"no version, raised":          {0, 0, 0, small, large},
		"the same version":            {7, 7, 7, large, small},
		"a higher version every time": {1, 2, 3, large, small},
	}, func(t *testing.T, v rollout) {
		t.Run("in virtual time", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := deployInMemory(t)
				d.andBack(v)
				d.fleet.close()
			})
		})
		t.Run("on Redis", func(t *testing.T) {
			testkit.LongOnly(t)
			deployOnRedis(t).andBack(v)
		})
	})
}

func (d *deployment) andBack(v rollout) {
	// Given ten processes at work,
	var fleet []*instance
	for range 10 {
		fleet = append(fleet, d.add(v.from, v.before))
	}
	d.awaitAdmitted(key, v.from.Capacity()+100)
	// when they are replaced by ten with another limit, and that is taken back,
	fleet = d.replace(fleet, v.to, v.deployed, v.deployed > v.before)
	d.awaitAdmitted(key, 100)
	fleet = d.replace(fleet, v.from, v.rolledBack, v.rolledBack > v.deployed)
	d.awaitAdmitted(key, 100)
	for _, p := range fleet {
		p.end(d.t, true)
	}
	// then each limit was in force in one stretch, and no window has more than they allow.
	testkit.Check(d.t, len(d.eras()) == 3, "the limits in force were %v", d.eras())
	d.checkAcross()
}

// TestRow34ADeployThatIsStoppedHalfwayChangesNothing: while a process of before is at work its limits hold,
// however many propose others. (In virtual time: a process that stands still for 2T is not at work.)
func TestRow34ADeployThatIsStoppedHalfwayChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := hybrid.PerSecond(500), hybrid.PerSecond(50).WithBurst(20)
		d := deployInMemory(t)
		// Given three processes of which two are replaced,
		stays := d.add(before, 0)
		fleet := []*instance{d.add(before, 0), d.add(before, 0)}
		swap := func(limit hybrid.Limit) {
			for i, p := range fleet {
				fleet[i] = d.add(limit, 0)
				p.end(t, i == 0)
			}
		}
		swap(after)
		// when all are at work for several T, and the two are put back,
		time.Sleep(5 * d.ttl)
		swap(before)
		d.awaitAdmitted(key, 100)
		for _, p := range append(fleet, stays) {
			p.end(t, true)
		}
		d.fleet.close()
		// then the limits in force have never changed, and the bound holds over all windows.
		testkit.Check(t, len(d.eras()) == 1 && d.eras()[0].limit == before, "%v", d.eras())
		d.checkBound(key, before, 0)
	})
}
