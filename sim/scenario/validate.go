package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// What a Scenario may ask for. The bounds keep a slip of the pen from a run that never ends or does
// not fit memory.
const (
	durationMin  = time.Millisecond
	DurationMax  = 30 * 24 * time.Hour
	seedMax      = 1<<53 - 1
	repsMax      = 10_000
	processesMax = 100_000
	keysMax      = 1_000_000
	shardsMax    = 16_384 // the slots of a Redis cluster
	callMin      = time.Microsecond
	callMax      = time.Minute // as package hybrid has it
	shareMax     = 1e12
	skewMax      = 10.0 // 1/k^10 leaves nothing to the second
	everyMin     = time.Millisecond
	offsetMax    = 100 * 365 * 24 * time.Hour
	driftMax     = 1e6 // ppm; a clock that stands still, or runs twice as fast
)

// Validate reports every violation of s, after Defaults, with its path, value and bound, as one
// error that joins *Violation values and so wraps ErrInvalidScenario. The names of Rivals are
// package rival's to check.
func (s Scenario) Validate() error {
	c := &checker{}
	if s.Duration != 0 {
		if v := inRange(c, "duration", s.Duration, durationMin, DurationMax); v.Message != "" {
			s.Duration = 0 // so that no default is derived from it
		}
	}
	s = s.Defaults()
	inRange(c, "warmup", s.Warmup, 0, s.Duration-1).Of = "duration"
	inRange(c, "seed", s.Seed, 1, seedMax)
	inRange(c, "reps", s.Reps, 1, repsMax)
	inRange(c, "call_timeout", s.CallTimeout, callMin, callMax)
	inRange(c, "keys.count", s.Keys.Count, 1, keysMax)
	inRange(c, "keys.zipf", s.Keys.Zipf, 0, skewMax)
	s.validateLimits(c)
	s.Clock.validate(c, "clock")
	s.validateGroups(c)
	s.validateWorkload(c, "workload", s.Workload)
	s.validateNetwork(c)
	s.validateRedis(c)
	return c.err()
}

// validateLimits checks the limits and the policy, each by itself and then together.
func (s Scenario) validateLimits(c *checker) {
	before := len(c.all)
	if n := len(s.Limits); n < 1 || n > lease.LimitsMax {
		c.bad("limits", "there are %d, must be 1 to %d", n, lease.LimitsMax)
	}
	for i, l := range s.Limits {
		for _, m := range unjoined(l.Validate(), lease.ErrInvalidLimit) {
			c.bad(elem("limits", i), "%s", m)
		}
	}
	for _, m := range unjoined(s.Policy.Validate(), lease.ErrInvalidPolicy) {
		field, _, _ := strings.Cut(m, " ") // every message begins with the field's name
		c.bad("policy."+FieldName(field), "%s", m)
	}
	if len(c.all) > before {
		return
	}
	config := s.Policy.ConfigFor(s.Limits, 0, max(s.CallTimeout, 0))
	for _, m := range unjoined(config.Validate(), lease.ErrInvalidConfig) {
		path := "policy"
		var i int
		if _, err := fmt.Sscanf(m, "limit %d:", &i); err == nil {
			path = elem("limits", i)
			m = m[strings.Index(m, lease.ErrInvalidLimit.Error())+len(lease.ErrInvalidLimit.Error()+": "):]
		}
		c.bad(path, "%s", m).Of = "policy"
	}
}

func (k Clock) validate(c *checker, path string) {
	c.around(path+".offset", k.Offset.Dist, asText(k.Offset), float64(offsetMax), offsetMax)
	c.around(path+".drift", k.Drift.Dist, asText(k.Drift), driftMax, "1000000ppm")
}

func (s Scenario) validateGroups(c *checker) {
	names := map[string]int{}
	processes := 0
	for i, g := range s.Groups {
		path := elem("groups", i)
		if first, ok := names[g.Name]; ok {
			v := c.bad(path+".name", "is %q, which is the name of groups[%d] too", g.Name, first)
			v.Of = elem("groups", first) + ".name"
		} else {
			names[g.Name] = i
		}
		inRange(c, path+".count", g.Count, 1, processesMax)
		for _, m := range unjoined(lease.Policy{Weight: g.Weight}.Validate(), lease.ErrInvalidPolicy) {
			c.bad(path+".weight", "%s", m)
		}
		inRange(c, path+".share", g.Share, 0, shareMax).Of = path + ".count"
		inRange(c, path+".skew", g.Skew, 0, skewMax)
		if g.Clock != nil {
			g.Clock.validate(c, path+".clock")
		}
		if g.Workload != nil {
			s.validateWorkload(c, path+".workload", *g.Workload)
		}
		g.Pauses.validate(c, path+".pauses")
		g.Restarts.validate(c, path+".restarts")
		most, last := g.Count, time.Duration(0)
		for j, step := range g.Scale {
			path := elem(path+".scale", j)
			inRange(c, path+".at", step.At, 0, s.Duration).Of = "duration"
			if step.At < last {
				v := c.bad(path+".at", "is %v, must not be before the step before (%v)", step.At, last)
				v.Of = elem("groups", i) + ".scale"
			}
			inRange(c, path+".count", step.Count, 0, processesMax)
			most, last = max(most, step.Count), step.At
		}
		processes += min(max(most, 0), processesMax+1)
	}
	if processes > processesMax {
		c.bad("groups", "have %d processes at the most, must be at most %d", processes, processesMax)
	}
}

func (p Stops) validate(c *checker, path string) {
	if p.Every != 0 {
		inRange(c, path+".every", p.Every, everyMin, DurationMax)
	}
	c.length(path+".for", p.For)
}

func (s Scenario) validateNetwork(c *checker) {
	n := s.Network
	c.length("network.round_trip", n.RoundTrip)
	inRange(c, "network.loss", n.Loss, 0, 1)
	inRange(c, "network.lost_replies", n.LostReplies, 0, 1)
	inRange(c, "network.duplicates", n.Duplicates, 0, 1)
	inRange(c, "network.duplicates_after", n.DuplicatesAfter, 0, DurationMax)
	for i, p := range n.Partitions {
		path := elem("network.partitions", i)
		inRange(c, path+".at", p.At, 0, s.Duration).Of = "duration"
		inRange(c, path+".for", p.For, 1, DurationMax)
		inRange(c, path+".part", p.Part, 0, 1)
		if p.Group != "" && !slices.ContainsFunc(s.Groups, func(g Group) bool { return g.Name == p.Group }) {
			c.bad(path+".group", "is %q, must be the name of a group, or empty for all", p.Group).Of = "groups"
		}
	}
}

func (s Scenario) validateRedis(c *checker) {
	c.length("redis.service_time", s.Redis.ServiceTime)
	inRange(c, "redis.shards", s.Redis.Shards, 1, shardsMax)
	for i, f := range s.Redis.Faults {
		path := elem("redis.faults", i)
		c.oneOf(path+".kind", f.Kind, FaultKinds)
		inRange(c, path+".at", f.At, 0, s.Duration).Of = "duration"
		low := time.Duration(0)
		if f.Kind == FaultOutage || f.Kind == FaultHang || f.Kind == FaultSlow {
			low = 1 // it is nothing without a length
		}
		inRange(c, path+".for", f.For, low, DurationMax)
		switch f.Kind {
		case FaultSlow:
			inRange(c, path+".by", f.By, 1, DurationMax)
		case FaultClockStep:
			if f.By == 0 {
				c.bad(path+".by", "is 0s, must be how far the clock jumps, forwards or backwards")
			}
			inRange(c, path+".by", f.By, -offsetMax, offsetMax)
		}
		inRange(c, path+".lost", f.Lost, 0, DurationMax)
		inRange(c, path+".shard", f.Shard, 0, s.Redis.Shards).Of = "redis.shards"
	}
}

// elem is the path of an element of a list.
func elem(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }
