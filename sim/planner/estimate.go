package planner

import (
	"math"
	"slices"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/random"
)

// Estimate is what a closed form says about a figure, as a range: the forms are rough on purpose, so that a reader can
// check a simulation with a pencil.
type Estimate struct {
	Figure  string  `json:"figure"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Formula string  `json:"formula"`
}

// Estimates are the closed forms for s, whose policy says its target and which has its defaults, under a load of so many
// tokens a second, of which each process asks for the given part. With d a process's requests for one key in a second,
// tau the target, rtt the 99th percentile of the round trip, R, B and E the limit's rate, burst and overcommit, and rho
// the demand of all for one key over R:
//
//	calls_per_s          sum over processes and keys. A lease is for n = d(tau + rtt) requests and 3 deviations more, so it
//	                     lasts tau + rtt to that with 6 sqrt((tau + rtt)/d): the demand is estimated with a deviation too.
//	                     Where n is below 2 nothing is leased ahead, and each request is a call. Where d is above the
//	                     process's max-min share, it calls again half a target to two targets after it fell short, or
//	                     when its share has earned it a token.
//	redis_cpu            calls * mean service time * the busiest shard's part
//	stranded             sum over processes and keys of the holdings. A holding falls from a lease to the watermark, what is
//	                     spent in an rtt and 3 deviations and 1: d*tau/2 in the mean, to that with the deviations and the
//	                     watermark; nothing where nothing is leased ahead. Where d is above the share f, a lease of f*p,
//	                     with p from tau/2 to 2 tau, is spent in p*f/d: f*f*p/2d in the mean.
//	false_reject_ratio   rho < 1, Poisson: the bucket works as if its burst were B - max(0, stranded - E), and a bucket
//	                     with a burst b denies exp(-2(1-rho)b/(rho m)), m = E[cost^2]/E[cost] (the diffusion limit of
//	                     M/G/1, Kingman 1962). The figure is the difference of the two. rho >= 1: a token not admitted now
//	                     is admitted later, so that only what is stranded at the end is lost: 0 to stranded/(B + R*time).
//	admitted_vs_central  1 - false_reject_ratio, for what was swapped is not lost
//	wait_ms_p99          0 where all find tokens, to a cold start: the 99th percentile of the round trip, and of the
//	                     service of all processes that start at one moment, one after the other
func Estimates(s sim.Scenario, tokensPerS float64, members []float64) []Estimate {
	l := load{tokensPerS: tokensPerS, members: members}
	low, high := callsEstimate(s, l)
	service := s.Redis.ServiceTime.Mean() / 1e9
	busiest := busiestPart(s)
	strandedLow, strandedHigh := strandedEstimate(s, l)
	all := []Estimate{
		{"calls_per_s", low, high, "a call per lease, process and key; up to 2/target each in overload"},
		{"redis_cpu", float64(low * service * busiest), float64(high * service * busiest), "calls x service time on the busiest shard"},
		{"stranded", strandedLow, strandedHigh, "half a lease per process and key, to that with its reserve"},
	}
	if e, ok := falseRejectEstimate(s, l, strandedLow, strandedHigh); ok {
		all = append(all, e, Estimate{"admitted_vs_central", 1 - e.High, 1 - e.Low, "1 - false_reject_ratio"})
	}
	cold := percentile99(s.Network.RoundTrip) + float64(percentile99(s.Redis.ServiceTime)*float64(processes(s))/float64(s.Redis.Shards))
	return append(all, Estimate{"wait_ms_p99", 0, cold / 1e6, "nothing, to a cold start: a round trip and everybody's service"})
}

// part is some processes or keys that are alike: how many, and the part of the load of each.
type part struct {
	count float64
	share float64
}

// partsMax bounds the sums: more processes or keys than that are taken together by their means.
const partsMax = 64

// processParts are the processes by their demand.
func processParts(s sim.Scenario, l load) (all []part) {
	shares := slices.Clone(l.members)
	if len(shares) == 0 {
		n := processes(s)
		return []part{{float64(n), 1 / float64(n)}}
	}
	slices.Sort(shares)
	n := min(len(shares), partsMax)
	for i := range n {
		from, to := i*len(shares)/n, (i+1)*len(shares)/n
		sum := 0.0
		for _, x := range shares[from:to] {
			sum += x
		}
		all = append(all, part{float64(to - from), sum / float64(to-from)})
	}
	return all
}

// keyParts are the keys by their popularity: the most popular ones by themselves, the others in ranges that double.
func keyParts(k sim.Keys) (all []part) {
	sum := 0.0
	for from, size := 1, 1; from <= k.Count; from += size {
		if from > partsMax/2 {
			size *= 2
		}
		to := min(from+size, k.Count+1)
		// The geometric middle stands for all of a range.
		weight := random.Pow(math.Sqrt(float64(from)*float64(to-1)), -k.Zipf)
		all = append(all, part{float64(to - from), weight})
		sum += float64(float64(to-from) * weight)
	}
	for i := range all {
		all[i].share /= sum
	}
	return all
}

// pairs calls f for all keys and processes, for each key with the demand of one process and the most that any may have of
// that key, its max-min share, in tokens a second.
func pairs(s sim.Scenario, l load, f func(keys, processes, demand, share float64)) {
	members := processParts(s, l)
	for _, k := range keyParts(s.Keys) {
		share := level(members, float64(l.tokensPerS*k.share), tightestRate(s))
		for _, p := range members {
			f(k.count, p.count, float64(l.tokensPerS*k.share*p.share), share)
		}
	}
}

// level is the max-min share: what each may have, at most, so that all together have rate. It is infinite where there is
// enough for all. The members are sorted by their part of the demand.
func level(members []part, demand, rate float64) float64 {
	left, waiting := rate, 0.0
	for _, m := range members {
		waiting += m.count
	}
	for _, m := range members {
		one := float64(m.share * demand)
		if one > left/waiting {
			return left / waiting
		}
		left -= float64(m.count * one)
		waiting -= m.count
	}
	return math.Inf(1)
}

func callsEstimate(s sim.Scenario, l load) (low, high float64) {
	tau := s.Policy.Target.Seconds()
	span := tau + tripOf(s)
	cost := meanCost(s.Workload)
	pairs(s, l, func(keys, processes, demand, share float64) {
		requests := demand / cost
		least, most := requests, requests
		switch {
		case demand > share:
			least, most = min(requests, 1/(2*tau), share/cost), min(requests, 2/tau)
		case !slow(s, requests):
			least, most = 1/(span+float64(6*math.Sqrt(span/requests))), 1/span
		}
		low += float64(keys * processes * least)
		high += float64(keys * processes * most)
	})
	return low, high
}

// tripOf is the round trip that a holder reckons with, in seconds: the 99th percentile.
func tripOf(s sim.Scenario) float64 { return percentile99(s.Network.RoundTrip) / 1e9 }

// slow says that so many requests a second at one process lease nothing ahead, as lease.Holder decides it: fewer than two
// in a lease, or a burst that would always be on its way.
func slow(s sim.Scenario, requests float64) bool {
	return float64(requests*(s.Policy.Target.Seconds()+tripOf(s))) < 2 ||
		float64(smallestBurst(s.Limits)+s.Policy.Overcommit) < float64(4*tightestRate(s)*tripOf(s))
}

func strandedEstimate(s sim.Scenario, l load) (low, high float64) {
	tau, trip := s.Policy.Target.Seconds(), tripOf(s)
	cost := meanCost(s.Workload)
	most := float64(smallestBurst(s.Limits) + s.Policy.Overcommit)
	pairs(s, l, func(keys, processes, demand, share float64) {
		requests := demand / cost
		least, room := 0.0, 0.0
		switch {
		case demand > share:
			held := share / demand * share                       // a lease of share*period is spent in share/demand of the period
			least, room = float64(held*tau/4), float64(held*tau) // with periods of tau/2 and 2 tau
		case !slow(s, requests):
			ahead, onTheWay := float64(requests*(tau+trip)), float64(requests*trip)
			least = float64(demand * tau / 2)
			room = float64(cost * (float64(ahead/2) + float64(1.5*math.Sqrt(ahead)) + onTheWay + float64(3*math.Sqrt(onTheWay)) + 1))
		}
		low += float64(keys * min(float64(processes*least), most))
		high += float64(keys * min(float64(processes*room), most))
	})
	return low, high
}

// falseRejectEstimate is of the mean key; not ok where there is no closed form.
func falseRejectEstimate(s sim.Scenario, l load, strandedLow, strandedHigh float64) (e Estimate, ok bool) {
	keys := float64(s.Keys.Count)
	rate, burst := tightestRate(s), float64(smallestBurst(s.Limits))
	rho := l.tokensPerS / keys / rate
	if rho >= 1 {
		lost := strandedHigh / keys / (burst + float64(rate*s.Duration.Seconds()))
		return Estimate{"false_reject_ratio", 0, min(1, lost), "nothing, to what is stranded at the end, of all that was there"}, true
	}
	if s.Workload.Kind != sim.Poisson || s.Keys.Zipf != 0 || rho <= 0 {
		return Estimate{}, false
	}
	a, b := float64(s.Workload.Cost.Min), float64(s.Workload.Cost.Max)
	n := b - a + 1
	variance := (float64(n*n) - 1) / 12 // of a discrete uniform
	mean := meanCost(s.Workload)
	m := (variance + float64(mean*mean)) / mean
	denied := func(stranded float64) float64 {
		left := burst - max(0, stranded/keys-float64(s.Policy.Overcommit))
		return random.Exp(-float64(2 * (1 - rho) * max(left, 0) / float64(rho*m)))
	}
	more := func(stranded float64) float64 {
		if x := denied(stranded) - denied(0); x > 1e-9 {
			return x
		}
		return 0 // one in a thousand million is none
	}
	return Estimate{"false_reject_ratio", more(strandedLow), more(strandedHigh),
		"a bucket whose burst lacks what is stranded, less the whole one, in the diffusion limit"}, true
}

func tightestRate(s sim.Scenario) float64 {
	r := math.Inf(1)
	for _, l := range s.Limits {
		r = min(r, l.Rate())
	}
	return r
}

func meanCost(w sim.Workload) float64 { return float64(w.Cost.Min+w.Cost.Max) / 2 }

func processes(s sim.Scenario) (n int) {
	for _, g := range s.Groups {
		n += g.Count
	}
	return n
}

// busiestPart is the part of the calls that the busiest shard has: an even one, or that of the most popular key.
func busiestPart(s sim.Scenario) float64 {
	return max(1/float64(min(s.Redis.Shards, s.Keys.Count)), keyParts(s.Keys)[0].share)
}

// percentile99 is the 99th percentile of d, in nanoseconds.
func percentile99(d sim.DurationDist) float64 {
	switch d.Kind {
	case sim.DistUniform:
		return d.P + float64(0.99*(d.Q-d.P))
	case sim.DistNormal:
		return d.P + float64(2.326*d.Q)
	case sim.DistExp:
		return float64(d.P * random.Log(100))
	case sim.DistLognormal:
		return d.Q
	case sim.DistPareto:
		return float64(d.P * random.Pow(100, 1/d.Q))
	}
	return d.P
}
