package scenario

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// ErrInvalidScenario is wrapped by every error that says why a Scenario cannot be run.
var ErrInvalidScenario = errors.New("sim: invalid scenario")

// Violation is one rule that a Scenario breaks. Validate joins them; each is found again through
// Unwrap() []error.
type Violation struct {
	// Path names the field as a scenario file does: groups[1].pauses.for. It is of the nearest
	// field that can be written in a file; "limits" where there are none.
	Path string
	// Message has the value and the bound.
	Message string
}

// Error implements error.
func (v *Violation) Error() string {
	return ErrInvalidScenario.Error() + ": " + v.Path + ": " + v.Message
}

// Unwrap is ErrInvalidScenario.
func (v *Violation) Unwrap() error { return ErrInvalidScenario }

// DurationMax is the longest run, and the longest time that anything in it may take.
const DurationMax = 30 * 24 * time.Hour

// These and the bounds in the checks below keep a slip of the pen from a run that never ends or
// does not fit memory.
const (
	processesMax = 100_000
	meanMin      = time.Microsecond // of what repeats itself, so that simulated time goes on
	offsetMax    = 100 * 365 * 24 * time.Hour
	driftMax     = 1e6 // ppm; a clock that stands still, or runs twice as fast
	alphaMax     = 100
)

// Validate reports the violations of s, after Defaults, each with its path, value and bound, as one
// error that joins *Violation values and so wraps ErrInvalidScenario. First come those of
// ValidateFields; where there are none, all fields that do not fit together. The names of Rivals
// are package rival's to check.
func (s Scenario) Validate() error {
	if err := s.ValidateFields(); err != nil {
		return err
	}
	s = s.Defaults()
	var c checker
	s.checkPolicy(&c)
	between(&c, "warmup", s.Warmup, 0, s.Duration-1)
	s.checkGroups(&c)
	s.checkWorkload(&c, "workload", s.Workload)
	for i, p := range s.Network.Partitions {
		path := elem("network.partitions", i)
		between(&c, path+".at", p.At, 0, s.Duration)
		if p.Group != "" && !slices.ContainsFunc(s.Groups, func(g Group) bool { return g.Name == p.Group }) {
			c.bad(path+".group", "is %q, must be the name of a group, or empty for all", p.Group)
		}
	}
	s.checkFaults(&c)
	return errors.Join(c...)
}

// ValidateFields reports, as Validate does, all fields that are wrong by themselves, whatever the
// kind of workload is: they all are part of the scenario's hash.
func (s Scenario) ValidateFields() error {
	var c checker
	if s.Duration != 0 && !between(&c, "duration", s.Duration, time.Millisecond, DurationMax) {
		s.Duration = 0 // so that no default is derived from it
	}
	s = s.Defaults()
	between(&c, "seed", s.Seed, 1, 1<<53-1)
	between(&c, "reps", s.Reps, 1, 10_000)
	if n := len(s.Limits); n < 1 || n > lease.LimitsMax {
		c.bad("limits", "there are %d, must be 1 to %d", n, lease.LimitsMax)
	}
	for i, l := range s.Limits {
		c.all(elem("limits", i), l.Validate(), lease.ErrInvalidLimit)
	}
	for _, m := range unjoined(s.Policy.Validate(), lease.ErrInvalidPolicy) {
		field, _, _ := strings.Cut(m, " ") // every message begins with the field's name
		c.bad("policy."+FieldName(field), "%s", m)
	}
	between(&c, "call_timeout", s.CallTimeout, time.Microsecond, time.Minute)
	between(&c, "keys.count", s.Keys.Count, 1, 1_000_000)
	between(&c, "keys.zipf", s.Keys.Zipf, 0, 10)
	c.clock("clock", s.Clock)
	for i, g := range s.Groups {
		c.group(elem("groups", i), g)
	}
	c.workload("workload", s.Workload)

	c.length("network.round_trip", s.Network.RoundTrip)
	between(&c, "network.loss", s.Network.Loss, 0, 1)
	between(&c, "network.lost_replies", s.Network.LostReplies, 0, 1)
	between(&c, "network.duplicates", s.Network.Duplicates, 0, 1)
	between(&c, "network.duplicates_after", s.Network.DuplicatesAfter, 0, DurationMax)
	for i, p := range s.Network.Partitions {
		path := elem("network.partitions", i)
		between(&c, path+".for", p.For, 1, DurationMax)
		between(&c, path+".part", p.Part, 0, 1)
	}
	c.length("redis.service_time", s.Redis.ServiceTime)
	between(&c, "redis.shards", s.Redis.Shards, 1, 16_384)
	for i, f := range s.Redis.Faults {
		path := elem("redis.faults", i)
		c.oneOf(path+".kind", f.Kind, FaultKinds)
		between(&c, path+".for", f.For, 0, DurationMax)
		between(&c, path+".lost", f.Lost, 0, DurationMax)
	}
	return errors.Join(c...)
}

// checker collects violations.
type checker []error

func (c *checker) bad(path, format string, args ...any) {
	*c = append(*c, &Violation{path, fmt.Sprintf(format, args...)})
}

// all adds the errors that joined has.
func (c *checker) all(path string, joined, sentinel error) {
	for _, m := range unjoined(joined, sentinel) {
		c.bad(path, "%s", m)
	}
}

// between demands low <= value <= high, and reports whether it is so.
func between[T cmp.Ordered](c *checker, path string, value, low, high T) bool {
	ok := value >= low && value <= high // NaN is not
	if !ok {
		c.bad(path, "is %s, must be %s to %s", asText(value), asText(low), asText(high))
	}
	return ok
}

// oneOf demands one of words.
func (c *checker) oneOf(path, value string, words []string) {
	if !slices.Contains(words, value) {
		c.bad(path, "is %q, must be one of %s", value, strings.Join(words, ", "))
	}
}

// dist demands a distribution that can be drawn from, with no parameter at bound or beyond. A draw
// may be; who draws it cuts it off there. The text is d's.
func (c *checker) dist(path string, d Dist, text string, bound float64, boundText any) {
	if _, ok := distRules[d.Kind]; !ok {
		c.bad(path, "is %s, but there is no distribution %q", text, d.Kind)
	} else if math.IsNaN(d.P-d.P) || math.IsNaN(d.Q-d.Q) { // so is Inf-Inf
		c.bad(path, "has the parameters %v and %v, must be finite", d.P, d.Q)
	} else if err := d.check(text); err != nil {
		c.all(path, err, ErrQuantity)
	} else if math.Abs(d.P) >= bound || math.Abs(d.Q) >= bound {
		c.bad(path, "is %s, must be strictly within +-%v", text, boundText)
	}
}

// length demands a distribution of lengths of time: none of its parameters is negative.
func (c *checker) length(path string, d DurationDist) {
	if d.P < 0 { // Q is not below it, or is a shape
		c.bad(path, "is %s, must not be negative", asText(d))
		return
	}
	c.dist(path, d.Dist, asText(d), float64(DurationMax)+1, DurationMax)
}

func (c *checker) clock(path string, clock Clock) {
	c.around(path, "offset", clock.Offset.Dist, asText(clock.Offset), float64(offsetMax), offsetMax)
	c.around(path, "drift", clock.Drift.Dist, asText(clock.Drift), driftMax, "1000000ppm")
}

// around demands the error of a clock. A plain value means both directions, so a negative one would
// not mean what it says.
func (c *checker) around(path, field string, d Dist, text string, bound float64, boundText any) {
	if d.Kind == DistConstant && d.P < 0 {
		c.bad(path+"."+field, "is %s, but a plain %s d means uniform in [-d, d]; "+
			"for one value write uniform(%[1]s,%[1]s)", text, field)
		return
	}
	c.dist(path+"."+field, d, text, bound, boundText)
}

func (c *checker) group(path string, g Group) {
	between(c, path+".count", g.Count, 1, processesMax)
	c.all(path+".weight", lease.Policy{Weight: g.Weight}.Validate(), lease.ErrInvalidPolicy)
	between(c, path+".share", g.Share, 0, 1e12)
	between(c, path+".skew", g.Skew, 0, 10)
	if g.Clock != nil {
		c.clock(path+".clock", *g.Clock)
	}
	if g.Workload != nil {
		c.workload(path+".workload", *g.Workload)
	}
	c.stops(path+".pauses", g.Pauses)
	c.stops(path+".restarts", g.Restarts)
	for i, step := range g.Scale {
		between(c, elem(path+".scale", i)+".count", step.Count, 0, processesMax)
	}
}

func (c *checker) stops(path string, s Stops) {
	if s.Every != 0 {
		between(c, path+".every", s.Every, time.Millisecond, DurationMax)
	}
	c.length(path+".for", s.For)
}

func (c *checker) workload(path string, w Workload) {
	c.oneOf(path+".kind", w.Kind, WorkloadKinds)
	c.oneOf(path+".verb", w.Verb, Verbs)
	between(c, path+".rate", w.Rate, 0, 1e9)
	between(c, path+".load", w.Load, 0, 1e6)
	if w.Cost.Min < 1 || w.Cost.Max < w.Cost.Min {
		c.bad(path+".cost", "is %s, must be 1 or more, and rise", asText(w.Cost))
	}
	between(c, path+".deadline", w.Deadline, 1, time.Hour)
	c.length(path+".patience", w.Patience)
	between(c, path+".on", w.On, meanMin, DurationMax)
	between(c, path+".off", w.Off, meanMin, DurationMax)
	if !(w.Alpha > 1 && w.Alpha <= alphaMax) {
		c.bad(path+".alpha", "is %v, must be above 1, or bursts have no mean, and at most %v", w.Alpha, alphaMax)
	}
	between(c, path+".burst", w.Burst, 1, 1e6)
	between(c, path+".period", w.Period, time.Millisecond, DurationMax)
	between(c, path+".swing", w.Swing, 0, 1)
	between(c, path+".at", w.At, 0, DurationMax)
	between(c, path+".for", w.For, 0, DurationMax)
	between(c, path+".factor", w.Factor, 0, 1e6)
	between(c, path+".every", w.Every, meanMin, DurationMax)
	between(c, path+".within", w.Within, 0, DurationMax)
	between(c, path+".clients", w.Clients, 1, 10_000)
	c.length(path+".think", w.Think)
	between(c, path+".retries", w.Retries, 0, 20)
	between(c, path+".backoff", w.Backoff, 0, time.Hour)
}

// elem is the path of an element of a list.
func elem(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// asText is a value as a scenario file has it.
func asText(value any) string {
	switch x := value.(type) {
	case encoding.TextMarshaler:
		if text, err := x.MarshalText(); err == nil {
			return string(text)
		}
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// unjoined is the texts of the errors that err joins, each without the prefix of sentinel.
func unjoined(err, sentinel error) (texts []string) {
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	for _, e := range errs {
		if e != nil {
			texts = append(texts, strings.TrimPrefix(e.Error(), sentinel.Error()+": "))
		}
	}
	return texts
}
