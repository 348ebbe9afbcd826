package protocol

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// equal reports whether c and o are equal except for the TTL, which the bucket adapts, and a switch's burst.
func equal(c, o *lease.Config) bool {
	on := SwitchOf(c.Limits)
	limits := on == SwitchNone && slices.Equal(c.Limits, o.Limits) || on != SwitchNone && on == SwitchOf(o.Limits)
	return limits && c.Overcommit == o.Overcommit && c.Target == o.Target &&
		c.StartEmpty == o.StartEmpty && c.CallsPerSecond == o.CallsPerSecond && c.Version == o.Version
}

// Wins reports whether v is a higher version than o.
func Wins(v, o lease.Version) bool {
	return v.Deploy > o.Deploy || v.Deploy == o.Deploy && v.Revision > o.Revision
}

// IsSet reports whether v is the version of limits that were set at run time (6.15).
func IsSet(v lease.Version) bool { return v.Revision%2 == 1 }

// Reported returns how many tokens of kind k a request reports, at most lease.WaitingMax.
func Reported(late []lease.Late, k lease.LateKind) (n int64) {
	for _, l := range late {
		if l.Kind == k {
			n += min(max(l.Tokens, 0), lease.WaitingMax-n)
		}
	}
	return n
}

// kept returns the tokens of a burst that this headroom leaves to others, rounded up as in Lua.
func kept(burst int64, headroom float64) int64 {
	return int64(math.Ceil(float64(float64(burst) * headroom)))
}

// mostOf returns the smallest burst of the limits, less the headroom.
func mostOf(limits []lease.Limit, headroom float64) int64 {
	n := int64(exact.MaxUnits)
	for _, l := range limits {
		if !lease.Blocked.Equal(l) { // Blocked denies a request of any size
			n = min(n, grantable(l, headroom))
		}
	}
	return n
}

// grantable returns the burst of l less the headroom: the most tokens that one call can get.
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

// ceilingOf returns the ceiling by the limit l, whose level is not known to be low, and the divisor of the
// burst (8.8). target is the Target in force. alone reports that the last reply named no other holder.
func ceilingOf(
	p *lease.Policy, c *lease.Config, target time.Duration, l lease.Limit, alone bool,
) (part, divisor int64) {
	burst, divisor := grantable(l, p.Headroom), int64(4)
	if alone {
		divisor = 2
	}
	// A bucket with an overcommit refills while tokens are leased, so that longer leases do no harm.
	longer := min((burst+c.Overcommit)/divisor, int64(l.Rate()*target.Seconds()))
	return max(burst/divisor, longer), divisor
}

// cramped reports whether the burst of a limit is too small for its rate and the round trip (8.6).
func cramped(p *lease.Policy, c *lease.Config, rtt time.Duration) bool {
	for _, l := range c.Limits {
		if float64(grantable(l, p.Headroom)+c.Overcommit) < 4*l.Rate()*rtt.Seconds() {
			return true
		}
	}
	return false
}

const (
	// easyCalls is the number of calls per second above which a fleet gets longer leases. Nine processes make
	// 90 calls a second with the default Target.
	easyCalls = 90
	// easyTarget and easyPause bound the Target and the pause that a large burst allows by default, in
	// microseconds. With easyTarget T is one second.
	easyTarget, easyPause = 250_000, 450_000
	// easyTargetPart and easyPausePart bound easyTarget and easyPause, as parts of the time in which a bucket
	// fills. Larger parts cost accuracy under changing load: docs/figures.md.
	easyTargetPart, easyPausePart = 1. / 8, 2. / 9
	// pausePart bounds the pause that the call budget demands, as a part of the time in which a bucket fills.
	pausePart = 0.88
	// fleetLeased is the part of B + E that the holders of a large fleet together may hold.
	fleetLeased = 0.85
	// targetMax is the Target with the longest possible T, in microseconds.
	targetMax = float64(exact.MaxTTL / exact.TTLPerTarget / time.Microsecond)
)

// ForScript returns a replacer that writes the values of Go's constants into lease.lua.
func ForScript() *strings.Replacer {
	return strings.NewReplacer(
		"callBudget", fmt.Sprint(new(lease.Config).CallBudget()), "easyCalls", fmt.Sprint(easyCalls),
		"easyTargetPart", fmt.Sprint(easyTargetPart), "easyPausePart", fmt.Sprint(easyPausePart),
		"easyTarget", fmt.Sprint(easyTarget), "easyPause", fmt.Sprint(easyPause),
		"pausePart", fmt.Sprint(pausePart), "targetMax", fmt.Sprintf("%.0f", targetMax))
}

// spacing returns the microseconds between two calls of a holder at which n holders keep to the call budget.
func spacing(c *lease.Config, n float64) float64 { return float64(n*1e6) / float64(c.CallBudget()) }

// fleetTarget returns the part of B + E that n holders may lease within one Target to save calls: nearly half
// for many holders, a quarter for 20. The demand of few holders varies more and needs a larger reserve.
func fleetTarget(n float64) float64 { return n / (float64(2*n) + 40) }

// easy returns the microseconds between two calls of a holder at which n holders keep to easyCalls, at most
// longest. easy returns 0 if a call budget was set, or if a limit is a window (7.8).
func easy(c *lease.Config, n, longest float64) float64 {
	if c.CallsPerSecond != 0 || slices.ContainsFunc(c.Limits, lease.Limit.Windowed) {
		return 0
	}
	return min(float64(n*1e6)/easyCalls, longest)
}

// targetOf returns the Target in force for each of n equal holders, in microseconds (7.8). fills is the least
// time in which a limit refills burst and overcommit.
func targetOf(c *lease.Config, n, fills float64) float64 {
	longer := min(spacing(c, n), float64(fleetTarget(n)*fills), targetMax)
	longer = max(longer, min(easy(c, n, easyTarget), float64(easyTargetPart*fills)))
	return max(float64(exact.Micros(c.Target)), math.Floor(longer))
}

// pauseOf returns the pause of each of n holders after a short grant, in microseconds (7.8). A pause is at
// most three quarters of the TTL, after which the bucket still knows the holder.
func pauseOf(c *lease.Config, n, fills, ttl float64) float64 {
	pause := min(spacing(c, n), float64(pausePart*fills))
	pause = max(pause, min(easy(c, n, easyPause), float64(easyPausePart*fills)))
	return min(pause, float64(0.75*ttl))
}

// TargetInForce returns the Target in force for each of n equal holders of a bucket with the configuration c.
func TargetInForce(c *lease.Config, n float64) time.Duration {
	fills := math.Inf(1)
	for _, l := range c.Limits {
		fills = min(fills, float64(l.Capacity()+c.Overcommit)/l.Rate()*1e6)
	}
	return exact.Duration(int64(targetOf(c, n, fills)))
}

// Spacing returns the time between two calls of a holder of this weight at which the fleet keeps to
// Policy.CallsPerSecond; 0 if the configured Target is long enough.
func Spacing(g *lease.Grant, weight int64) time.Duration {
	n := float64(g.ActiveWeight) / float64(max(weight, 1))
	d := spacing(&g.Config, n) * float64(time.Microsecond)
	if d <= float64(g.Config.Target) {
		return 0
	}
	return time.Duration(min(d, float64(exact.MaxTTL)))
}

// BurstWanted returns the burst for leases as long as Policy.CallsPerSecond demands; 0 if all bursts suffice.
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

// SwitchNone leaves the limits in force; SwitchUnlimited and SwitchBlocked suspend the limits.
const (
	SwitchNone Switch = iota
	SwitchUnlimited
	SwitchBlocked
)

var switchLimits = [...][]lease.Limit{SwitchUnlimited: {lease.Unlimited}, SwitchBlocked: {lease.Blocked}}

// Limits returns the limits that name the switch in requests and replies.
func (s Switch) Limits() []lease.Limit { return switchLimits[s] }

// SwitchOf returns the switch that limits propose. Only a single limit, Unlimited or Blocked, is a switch.
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
