package view

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

func (r Result) judge(d *Document, s sim.Scenario) {
	rep, bound := &r.Report, r.bound()
	if !rep.Charged.IsZero() || !rep.Refunded.IsZero() {
		bound += " + refunds + tokens still owed"
	}
	if rep.Reps < rep.RepsAsked {
		d.say(Neutral, "Interrupted after %d of %s; the figures cover these.", rep.Reps,
			Count(rep.RepsAsked, "replication"))
	}
	if worst := rep.BoundExceededBy; worst.Worst == 0 {
		d.say(Good, "The bound holds: in no window of %s did the fleet admit more than %s.",
			Count(rep.Reps, "replication"), bound)
	} else {
		why := ""
		if reasons := excuses(s); len(reasons) > 0 {
			why = " The scenario allows that: " + strings.Join(reasons, "; ") + "."
		}
		d.say(Bad, "The bound is exceeded: in the worst window the fleet admitted %s more than %s (seed %d).%s",
			Count(worst.Worst, "token"), bound, worst.WorstSeed, why)
	}
	if rep.Unsettled > 0 {
		d.say(Bad, "This fleet does not settle: in %d of %s its start rejected more tokens than buckets and "+
			"leases can hold, %s. The ratios cover those runs as a whole.", rep.Unsettled,
			Count(rep.Reps, "replication"), things(Number(s.Stockable()), "token"))
	}
	if enough := s.Enough(); enough > 0 && rep.FalseRejectRatio.Mean > 0 {
		d.say(Neutral, "%s s are too short for this fleet to settle, so one-time rejects, as at the start, count as "+
			"permanent. Use --duration %v.", Number(rep.DurationS), enough)
	}
	if rep.Offered.Mean > 0 && !limits(&rep.Figures) {
		d.say(Neutral, "One central bucket denies nothing in this run, so its rejects say nothing about a higher load.")
	}
	if rep.Offered.Mean == 0 {
		d.say(Bad, "No request counts in this run: the load is too low, or the counted time too short.")
	}
	if mean := time.Duration(s.Network.RoundTrip.Mean()); mean > s.CallTimeout*15/16 {
		d.say(Bad, "Most lease calls fail: a mean round trip of %v is above 15/16 of call_timeout, %v.", mean,
			s.CallTimeout)
	}
	saturation(d, &rep.Figures)
	stock := func(f sim.Figure, when string) {
		if math.Round(f.Mean) > 0 {
			d.say(Neutral, "The fleet rejected %s wrongly %s.", things(Mean("start_stock", f), "token"), when)
		}
	}
	stock(rep.StartStock, "once, while it started or grew")
	stock(rep.FaultStock, "for each fault")
	for _, t := range r.Thresholds {
		if failure := t.Failure(rep); failure != "" {
			d.say(Bad, "Does not hold: %s (%s)", t, failure)
		} else {
			d.say(Good, "Holds: %s", t)
		}
	}
}

func saturation(d *Document, f *sim.Figures) {
	if search.Saturated(f.RedisCPU) {
		d.say(Bad, "Redis is saturated: its busiest shard works %s of the time, and calls wait in line. Use "+
			"more shards (redis.shards), a larger burst or a longer target.", Percent(f.RedisCPU.Worst))
	}
}

// excuses lists the settings with which a fleet may exceed the bound although the leases work as specified.
func excuses(s sim.Scenario) (reasons []string) {
	excuse := func(allows bool, reason string) {
		if allows {
			reasons = append(reasons, reason)
		}
	}
	excuse(s.Policy.Fallback != lease.FallbackDeny, "the fallback admits while Redis does not answer")
	excuse(s.Policy.ColdStart == lease.ColdStartAllow, "the policy admits before the first reply")
	for _, f := range s.Redis.Faults {
		excuse(f.Kind == sim.FaultFailover && f.Lost > 0, fmt.Sprintf("a failover loses %v of writes", f.Lost))
		excuse(f.Kind == sim.FaultRestartEmpty && !s.Policy.StartEmpty,
			"Redis restarts empty, and new buckets start full")
	}
	for _, g := range s.Groups {
		excuse(g.Pauses.Every+g.Pauses.At > 0 && !s.Policy.StrictExpiry,
			"processes are paused past their leases, without strict_expiry")
	}
	return reasons
}
