package protocol

import (
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

const (
	// easyCalls is how many calls a second of a whole fleet are not worth longer leases: ten processes
	// make as many with the default Target.
	easyCalls = 90
	// easyTarget and easyPause, in microseconds, are the Target and the pause after a short grant that a
	// large burst gives a fleet by default. T stays at a second, so a loss is waited out in that.
	easyTarget, easyPause = 250_000, 450_000
	// easyTargetPart and easyPausePart are the parts of B + E that a fleet which wants the whole rate
	// leases in one of those. With more, loads that come and go lose accuracy: docs/figures.md.
	easyTargetPart, easyPausePart = 1. / 8, 2. / 9
	// fleetLeased is the part of B + E that all holders of a large fleet may hold together.
	fleetLeased = 0.85
	// targetMax is that whose T is the longest there may be, in microseconds.
	targetMax = float64(lease.TTLMax / lease.TTLPerTarget / time.Microsecond)
)

// spacing is the microseconds between two calls of each of n holders that keep the budget.
func spacing(c *lease.Config, n float64) float64 { return float64(n*1e6) / float64(c.CallBudget()) }

// fleetTarget is the part of B + E that n holders may lease within one Target for the sake of their
// budget: half of it for many, a quarter for twenty. The fewer they are, the more their demand varies,
// for which they need the rest.
func fleetTarget(n float64) float64 { return n / (float64(2*n) + 40) }

// easy is the microseconds between two calls that cost n holders no accuracy where they are within a
// part of the burst, at most longest; 0 where a budget was set, or a window counts what is spent from
// its report on.
func easy(c *lease.Config, n, longest float64) float64 {
	if c.CallsPerSecond != 0 || slices.ContainsFunc(c.Limits, lease.Limit.Windowed) {
		return 0
	}
	return min(float64(n*1e6)/easyCalls, longest)
}

// targetOf is the Target in force for each of n alike holders, in microseconds: the configured one, or
// where they are too many for that a longer one. fills is the microseconds in which the limit that takes
// least makes its burst and the overcommit.
func targetOf(c *lease.Config, n, fills float64) float64 {
	longer := min(spacing(c, n), float64(fleetTarget(n)*fills), targetMax)
	longer = max(longer, min(easy(c, n, easyTarget), float64(easyTargetPart*fills)))
	return max(float64(exact.Micros(c.Target)), math.Floor(longer))
}

// pauseOf is how long each of n holders should wait after a short grant, in microseconds: as the
// budget wants, but not longer than it is remembered, and what all of them are granted within that
// time must fit into the bucket beside what refills.
func pauseOf(c *lease.Config, n, fills, ttl float64) float64 {
	pause := min(spacing(c, n), float64(0.88*fills))
	pause = max(pause, min(easy(c, n, easyPause), float64(easyPausePart*fills)))
	return min(pause, float64(0.75*ttl))
}

// TargetInForce is the Target in force for each of n alike holders of a bucket of c.
func TargetInForce(c *lease.Config, n float64) time.Duration {
	fills := math.Inf(1)
	for _, l := range c.Limits {
		fills = min(fills, float64(l.Capacity()+c.Overcommit)/l.Rate()*1e6)
	}
	return exact.Duration(int64(targetOf(c, n, fills)))
}

// Spacing is the time between two calls of a holder of this weight with which the fleet keeps its
// budget (Policy.CallsPerSecond); 0 for a fleet that does so with the Target that is configured.
func Spacing(g *lease.Grant, weight int64) time.Duration {
	n := float64(g.ActiveWeight) / float64(max(weight, 1))
	d := spacing(&g.Config, n) * float64(time.Microsecond)
	if d <= float64(g.Config.Target) {
		return 0
	}
	return time.Duration(min(d, float64(lease.TTLMax)))
}

// BurstWanted is the burst of the tightest limit with which leases could be as long as the budget
// of calls wants them (Policy.CallsPerSecond); 0 where they are.
func BurstWanted(g *lease.Grant, weight int64) int64 {
	spacing, wanted := Spacing(g, weight), 0.0
	part := fleetTarget(float64(g.ActiveWeight) / float64(max(weight, 1)))
	for _, l := range g.Config.Limits {
		burst := float64(l.Rate()*spacing.Seconds())/part - float64(g.Config.Overcommit)
		if burst > float64(l.Capacity()) {
			wanted = max(wanted, burst)
		}
	}
	return int64(math.Ceil(min(wanted, exact.MaxUnits)))
}
