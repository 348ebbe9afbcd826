package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/rival"
)

// ErrInvalidScenario is wrapped by every error about a Scenario that cannot be run.
var ErrInvalidScenario = errors.New("sim: invalid scenario")

// Validate reports the violations of s, after Defaults, as one error that joins them. Each violation is a
// lease.Violation that wraps ErrInvalidScenario, with the field's path in a scenario file. If ValidateFields
// finds no violation, Validate reports all fields that do not fit together. Only package rival checks whether
// a rival can hold the limits.
func (s Scenario) Validate() error {
	if err := s.ValidateFields(); err != nil {
		return err
	}
	return s.check(true)
}

// ValidateFields reports, as Validate does, all fields that are wrong whatever the other fields are.
func (s Scenario) ValidateFields() error { return s.check(false) }

type checker struct {
	Scenario
	violation.List
	together bool // no field is wrong by itself, so the checker compares fields
}

func (s Scenario) check(together bool) error {
	c := &checker{List: violation.List{Kind: ErrInvalidScenario}, together: together}
	if s.Duration != 0 && !between(c, "duration", s.Duration, time.Millisecond, DurationMax) {
		s.Duration = 0 // no default may depend on an invalid duration
	}
	c.Scenario = s.Defaults()
	s = c.Scenario
	if strings.ContainsFunc(s.Name, unicode.IsControl) {
		c.Add("name", s.Name, "must be without control characters")
	}
	between(c, "seed", s.Seed, 1, 1<<53-1)
	between(c, "reps", s.Reps, 1, 10_000)
	c.policy()
	between(c, "call_timeout", s.CallTimeout, time.Microsecond, time.Minute)
	between(c, "keys.count", s.Keys.Count, 1, 1_000_000)
	between(c, "keys.zipf", s.Keys.Zipf, 0, 10)
	c.dist("clock.offset", s.Clock.Offset.Dist, s.Clock.Offset, float64(offsetMax), offsetMax)
	c.dist("clock.drift", s.Clock.Drift.Dist, s.Clock.Drift, driftMax, "1000000ppm")
	most := DurationMax
	if together {
		most = s.Duration
	}
	between(c, "warmup", s.Warmup, 0, most-1)
	c.groups()
	headroom := 0.0
	for _, g := range s.Groups {
		if g.Workload == nil {
			headroom = max(headroom, g.Headroom)
		}
	}
	c.workload("workload", s.Workload, headroom)
	c.length("network.round_trip", s.Network.RoundTrip)
	between(c, "network.loss", s.Network.Loss, 0, 1)
	between(c, "network.lost_replies", s.Network.LostReplies, 0, 1)
	for i, p := range s.Network.Partitions {
		c.partition(elem("network.partitions", i), p)
	}
	c.length("redis.service_time", s.Redis.ServiceTime)
	c.length("redis.exchange_time", s.Redis.ExchangeTime)
	c.length("redis.wake_time", s.Redis.WakeTime)
	between(c, "redis.shards", s.Redis.Shards, 1, 16_384)
	for i, f := range s.Redis.Faults {
		c.fault(elem("redis.faults", i), f)
	}
	for i, name := range s.Rivals {
		if err := rival.Check(name); err != nil {
			c.adopt(elem("rivals", i), err)
		} else if first := slices.Index(s.Rivals, name); together && first < i {
			c.Add(elem("rivals", i), name, "which is rivals[%d] too", first)
		}
	}
	return c.Err()
}

// between demands low <= value <= high, and reports whether value fulfils the demand.
func between[T cmp.Ordered](c *checker, path string, value, low, high T) bool {
	return violation.Between(&c.List, path, value, low, high)
}

func (c *checker) oneOf(path, value string, words []string) {
	if !slices.Contains(words, value) {
		c.Add(path, value, "must be one of %s", strings.Join(words, ", "))
	}
}

// duringTheRun demands a time within the run.
func (c *checker) duringTheRun(path string, at time.Duration) {
	if c.together {
		between(c, path, at, 0, c.Duration)
	}
}

// tokens demands a distribution of tokens with a mean of at least 1, because the load is divided by the mean.
func (c *checker) tokens(path string, d TokenDist) {
	wrong := c.Len()
	c.dist(path, d.Dist, d, tokensMax+1, tokensMax)
	if c.Len() == wrong && !d.IsZero() && (d.P < 0 || d.Mean() < 1) {
		c.Add(path, d, "must be 0 or more, with a mean of at least 1")
	}
}

// length demands a distribution of durations, whose parameters must not be negative.
func (c *checker) length(path string, d DurationDist) {
	if d.P < 0 { // dist checks Q
		c.Add(path, d, "must not be negative")
		return
	}
	c.dist(path, d.Dist, d, float64(DurationMax)+1, DurationMax)
}

// dist demands a distribution whose parameters are below bound. value is the field's value for the error.
func (c *checker) dist(path string, d Dist, value any, bound float64, boundText any) {
	if d.Kind != DistConstant && !slices.Contains(distKinds, d.Kind) {
		c.Add(path, value, "is a %q, which is no distribution", d.Kind)
	} else if math.IsNaN(d.P-d.P) || math.IsNaN(d.Q-d.Q) { // Inf-Inf is NaN
		c.Add(path, nil, "has the parameters %v and %v, must be finite", d.P, d.Q)
	} else if err := d.check(violation.Show(value)); err != nil {
		c.adopt(path, err)
	} else if math.Abs(d.P) >= bound || math.Abs(d.Q) >= bound {
		c.Add(path, value, "must be strictly within +-%v", boundText)
	}
}

func (c *checker) groups() {
	names := map[string]int{}
	processes := 0
	for i, g := range c.Groups {
		path := elem("groups", i)
		if first, again := names[g.Name]; !again {
			names[g.Name] = i
		} else if c.together {
			c.Add(path+".name", g.Name, "which is the name of groups[%d] too", first)
		}
		between(c, path+".count", g.Count, 1, processesMax)
		// The policy's own weight is checked with the policy.
		if of := (lease.Policy{Weight: g.Weight}); g.Weight != c.Policy.Weight {
			c.adopt(path, of.Validate())
		}
		if g.Headroom != c.Policy.Headroom {
			c.adopt(path, lease.Policy{Headroom: g.Headroom}.Validate())
		}
		between(c, path+".share", g.Share, 0, 1e12)
		between(c, path+".skew", g.Skew, 0, 10)
		c.length(path+".round_trip", g.RoundTrip)
		if g.Workload != nil {
			c.workload(path+".workload", *g.Workload, g.Headroom)
		}
		c.stops(path+".pauses", g.Pauses)
		c.stops(path+".restarts", g.Restarts)
		most, last := g.Count, time.Duration(0)
		for j, step := range g.Scale {
			path := elem(path+".scale", j)
			between(c, path+".count", step.Count, 0, processesMax)
			c.duringTheRun(path+".at", step.At)
			if c.together && step.At < last {
				c.Add(path+".at", step.At, "must not be before the previous step (%v)", last)
			}
			most, last = max(most, step.Count), step.At
		}
		processes += most
	}
	if c.together && processes > processesMax {
		c.Add("groups", nil, "have up to %d processes, must be at most %d", processes, processesMax)
	}
}

func (c *checker) stops(path string, s Stops) {
	if s.Every != 0 {
		between(c, path+".every", s.Every, time.Millisecond, DurationMax)
	}
	c.duringTheRun(path+".at", s.At)
	if s.Every != 0 && s.At != 0 {
		c.Add(path+".at", s.At, "and every is %v, but stops happen once or repeatedly; one of them must be 0",
			s.Every)
	}
	c.length(path+".for", s.For)
}

func (c *checker) partition(path string, p Partition) {
	c.duringTheRun(path+".at", p.At)
	between(c, path+".for", p.For, 1, DurationMax)
	between(c, path+".part", p.Part, 0, 1)
	named := func(g Group) bool { return g.Name == p.Group }
	if c.together && p.Group != "" && !slices.ContainsFunc(c.Groups, named) {
		c.Add(path+".group", p.Group, "must be the name of a group, or empty for all")
	}
}

func (c *checker) fault(path string, f RedisFault) {
	c.oneOf(path+".kind", f.Kind, FaultKinds)
	c.duringTheRun(path+".at", f.At)
	between(c, path+".for", f.For, 0, DurationMax)
	between(c, path+".lost", f.Lost, 0, DurationMax)
	if !c.together {
		return
	}
	if f.Kind == FaultOutage || f.Kind == FaultHang {
		between(c, path+".for", f.For, 1, DurationMax)
	}
	between(c, path+".shard", f.Shard, 0, c.Redis.Shards)
	if f.Lost != 0 && f.Kind != FaultFailover {
		c.Add(path+".lost", f.Lost, "which a fault of kind %s does not read; it is for failover", f.Kind)
	}
}

func elem(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// policy checks that limits and policy are valid, and together make a valid configuration of a bucket.
func (c *checker) policy() {
	if n := len(c.Limits); n < 1 || n > lease.LimitsMax {
		c.Add("limits", c.Limits, "must have 1 to %d", lease.LimitsMax)
	}
	for i, l := range c.Limits {
		c.adopt(elem("limits", i), l.Validate())
	}
	c.adopt("policy", c.Policy.Validate())
	if c.together {
		c.adopt("policy", c.Policy.ConfigFor(c.Limits, 0, max(c.CallTimeout, 0)).Validate())
	}
}

// adopt adds the violations in err to the violations of a section of the file.
func (c *checker) adopt(section string, err error) {
	c.Adopt(err, func(path string) string {
		path = violation.Rename(path, FieldName)
		if strings.HasPrefix(path, "limits[") {
			return path
		}
		return violation.Under(section)(path)
	})
}
