package protocol

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// equal reports whether c and o agree on everything but the TTL, which grows by itself. A switch may be written
// in two ways, with its burst or without.
func equal(c, o *lease.Config) bool {
	on := SwitchOf(c.Limits)
	limits := on == SwitchNone && slices.Equal(c.Limits, o.Limits) || on != SwitchNone && on == SwitchOf(o.Limits)
	return limits && c.Overcommit == o.Overcommit && c.Target == o.Target &&
		c.StartEmpty == o.StartEmpty && c.CallsPerSecond == o.CallsPerSecond && c.Version == o.Version
}

// kept is the tokens of a burst that a caller with this headroom does not see, rounded as in Lua.
func kept(burst int64, headroom float64) int64 {
	return int64(math.Ceil(float64(float64(burst) * headroom)))
}

// mostOf is the most tokens that all limits have at once for a holder that leaves this headroom.
func mostOf(limits []lease.Limit, headroom float64) int64 {
	n := int64(exact.MaxUnits)
	for _, l := range limits {
		if !lease.Blocked.Equal(l) { // which denies any n alike
			n = min(n, grantable(l, headroom))
		}
	}
	return n
}

// grantable is the most that can ever be granted of l to a process with this headroom.
func grantable(l lease.Limit, headroom float64) int64 {
	return l.Capacity() - kept(l.Capacity(), headroom)
}

func longestToFull(limits []lease.Limit) (longest time.Duration) {
	for _, l := range limits {
		longest = max(longest, l.TimeToFull())
	}
	return longest
}

func weightOf(p *lease.Policy) int64 { return max(p.Weight, 1) }

// ceilingOf is the ceiling by one limit while its level is not known to be low, and by what the burst was
// divided for it. target is the one in force, and alone says that no other holder was active, as last heard.
func ceilingOf(
	p *lease.Policy, c *lease.Config, target time.Duration, l lease.Limit, alone bool,
) (part, divisor int64) {
	burst, divisor := grantable(l, p.Headroom), int64(4)
	if alone {
		divisor = 2
	}
	// With an overcommit the bucket refills beside leases, so longer ones do no harm.
	longer := min((burst+c.Overcommit)/divisor, int64(l.Rate()*target.Seconds()))
	return max(burst/divisor, longer), divisor
}

// crampedBy reports the same of a policy and a configuration.
func crampedBy(p *lease.Policy, c *lease.Config, rtt time.Duration) bool {
	for _, l := range c.Limits {
		if float64(grantable(l, p.Headroom)+c.Overcommit) < 4*l.Rate()*rtt.Seconds() {
			return true
		}
	}
	return false
}

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
	// pausePart is the part of the time in which a bucket fills that a pause may last for the sake of the budget.
	pausePart = 0.88
	// fleetLeased is the part of B + E that all holders of a large fleet may hold together.
	fleetLeased = 0.85
	// targetMax is that whose T is the longest there may be, in microseconds.
	targetMax = float64(lease.TTLMax / lease.TTLPerTarget / time.Microsecond)
)

// ForScript is these numbers as lease.lua has them, which computes the Target in force as the Go code does.
func ForScript() string {
	return fmt.Sprintf("local callBudget, easyCalls, easyTarget, easyPause, easyTargetPart, easyPausePart, pausePart, "+
		"targetMax = %d, %d, %d, %d, %v, %v, %v, %.0f\n", new(lease.Config).CallBudget(), easyCalls, easyTarget,
		easyPause, easyTargetPart, easyPausePart, pausePart, targetMax)
}

// spacing is the microseconds between two calls of each of n holders that keep the budget.
func spacing(c *lease.Config, n float64) float64 { return float64(n*1e6) / float64(c.CallBudget()) }

// fleetTarget is the part of B + E that n holders may lease within one Target for the sake of their
// budget: half of it for many, a quarter for twenty. The fewer they are, the more their demand varies,
// for which they need the rest.
func fleetTarget(n float64) float64 { return n / (float64(2*n) + 40) }

// easy is the microseconds between two calls that cost n holders no accuracy where they are within a part of
// the burst, at most longest; 0 where a budget was set, or a window counts what is spent from its report on.
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
	pause := min(spacing(c, n), float64(pausePart*fills))
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

// Switch suspends the limits of a bucket: docs/protocol.md section 6.17.
type Switch int

// The switches. Without one the limits of a bucket decide.
const (
	SwitchNone Switch = iota
	SwitchUnlimited
	SwitchBlocked
)

var switchLimits = [...][]lease.Limit{SwitchUnlimited: {lease.Unlimited}, SwitchBlocked: {lease.Blocked}}

// Limits are the limits by which a process proposes the switch, and hears of it.
func (s Switch) Limits() []lease.Limit { return switchLimits[s] }

// SwitchOf is the switch that these limits propose: Unlimited or Blocked by itself.
func SwitchOf(limits []lease.Limit) Switch {
	switch {
	case len(limits) != 1:
	case lease.Unlimited.Equal(limits[0]):
		return SwitchUnlimited
	case lease.Blocked.Equal(limits[0]):
		return SwitchBlocked
	}
	return SwitchNone
}
