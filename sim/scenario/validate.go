package scenario

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// DurationMax is the longest run, and the longest time that anything in it may take.
const DurationMax = 30 * 24 * time.Hour

const (
	processesMax = 100_000
	meanMin      = time.Microsecond // of what repeats itself, so that simulated time goes on
	offsetMax    = 100 * 365 * 24 * time.Hour
	driftMax     = 1e6 // ppm; a clock that stands still, or runs twice as fast
	alphaMax     = 100
)

// Validate reports the violations of s, after Defaults, each with its path, value and bound, as one
// error that joins *Violation values and so wraps ErrInvalidScenario. First come all fields that
// are wrong by themselves, whatever the kind of workload is, for they all are part of the
// scenario's hash; where there are none, all that do not fit together. The names of Rivals are
// package rival's to check.
func (s Scenario) Validate() error {
	c := &checker{}
	if s.Duration != 0 && !inRange(c, "duration", s.Duration, time.Millisecond, DurationMax) {
		s.Duration = 0 // so that no default is derived from it
	}
	s = s.Defaults()
	s.validateLimits(c)
	c.walk("", reflect.ValueOf(s))
	if len(c.all) == 0 {
		s.validateTogether(c)
	}
	return errors.Join(c.all...)
}

func (s Scenario) validateLimits(c *checker) {
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
}

// walk checks each field by itself: that it is within the bounds of its tag, and that what is
// random can be drawn.
func (c *checker) walk(path string, v reflect.Value) {
	switch x := v.Interface().(type) {
	case lease.Policy, []lease.Limit, *Trace:
		return // they have rules of their own
	case DurationDist:
		c.length(path, x)
		return
	case Clock:
		c.around(path+".offset", x.Offset.Dist, asText(x.Offset), float64(offsetMax), offsetMax)
		c.around(path+".drift", x.Drift.Dist, asText(x.Drift), driftMax, "1000000ppm")
		return
	case Group:
		for _, m := range unjoined(lease.Policy{Weight: x.Weight}.Validate(), lease.ErrInvalidPolicy) {
			c.bad(path+".weight", "%s", m)
		}
	case Workload:
		c.oneOf(path+".kind", x.Kind, WorkloadKinds)
		c.oneOf(path+".verb", x.Verb, Verbs)
		if !(x.Alpha > 1 && x.Alpha <= alphaMax) {
			c.bad(path+".alpha", "is %v, must be above 1, or bursts have no mean, and at most %v", x.Alpha, alphaMax)
		}
		if x.Cost.Min < 1 || x.Cost.Max < x.Cost.Min {
			c.bad(path+".cost", "is %s, must be 1 or more, and rise", asText(x.Cost))
		}
	case RedisFault:
		c.oneOf(path+".kind", x.Kind, FaultKinds)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c.walk(path, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.walk(elem(path, i), v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name := strings.TrimPrefix(path+"."+FieldName(field.Name), ".")
			c.within(name, v.Field(i), field.Tag.Get("in"))
			c.walk(name, v.Field(i))
		}
	}
}

// within checks a value against a tag: LOW..HIGH in the text of the value's type, or "0 or" these.
func (c *checker) within(path string, v reflect.Value, tag string) {
	tag, optional := strings.CutPrefix(tag, "0 or ")
	if tag == "" || optional && v.IsZero() {
		return
	}
	least, most, _ := strings.Cut(tag, "..")
	low, high := parsed(v.Type(), least), parsed(v.Type(), most)
	if !(number64(v) >= number64(low) && number64(v) <= number64(high)) { // NaN is not
		c.bad(path, "is %s, must be %s to %s", asText(v.Interface()), asText(low.Interface()), asText(high.Interface()))
	}
}

// number64 is exact for all bounds: they are below 2^53.
func number64(v reflect.Value) float64 { return v.Convert(reflect.TypeFor[float64]()).Float() }

// parsed reads a bound. A tag that cannot be read is a mistake in this package.
func parsed(t reflect.Type, text string) reflect.Value {
	v := reflect.New(t)
	var err error
	switch x := v.Interface().(type) {
	case encoding.TextUnmarshaler:
		err = x.UnmarshalText([]byte(text))
	case *time.Duration:
		*x, err = time.ParseDuration(text)
	default:
		_, err = fmt.Sscan(text, x)
	}
	if err != nil {
		panic(fmt.Sprintf("sim: the bound %q of a %v: %v", text, t, err))
	}
	return v.Elem()
}

// validateTogether checks fields against each other, where each is right by itself.
func (s Scenario) validateTogether(c *checker) {
	c.together = true
	config := s.Policy.ConfigFor(s.Limits, 0, max(s.CallTimeout, 0))
	for _, m := range unjoined(config.Validate(), lease.ErrInvalidConfig) {
		path := "policy"
		var i int
		if _, err := fmt.Sscanf(m, "limit %d:", &i); err == nil {
			path = elem("limits", i)
			m = m[strings.Index(m, lease.ErrInvalidLimit.Error())+len(lease.ErrInvalidLimit.Error()+": "):]
		}
		c.bad(path, "%s", m)
	}
	inRange(c, "warmup", s.Warmup, 0, s.Duration-1)
	s.validateGroups(c)
	s.validateWorkload(c, "workload", s.Workload)
	for i, p := range s.Network.Partitions {
		path := elem("network.partitions", i)
		inRange(c, path+".at", p.At, 0, s.Duration)
		if p.Group != "" && !slices.ContainsFunc(s.Groups, func(g Group) bool { return g.Name == p.Group }) {
			c.bad(path+".group", "is %q, must be the name of a group, or empty for all", p.Group)
		}
	}
	s.validateFaults(c)
}

func (s Scenario) validateGroups(c *checker) {
	names := map[string]int{}
	processes := 0
	for i, g := range s.Groups {
		path := elem("groups", i)
		if first, ok := names[g.Name]; ok {
			c.bad(path+".name", "is %q, which is the name of groups[%d] too", g.Name, first)
		} else {
			names[g.Name] = i
		}
		if g.Workload != nil {
			s.validateWorkload(c, path+".workload", *g.Workload)
		}
		most, last := g.Count, time.Duration(0)
		for j, step := range g.Scale {
			path := elem(path+".scale", j)
			inRange(c, path+".at", step.At, 0, s.Duration)
			if step.At < last {
				c.bad(path+".at", "is %v, must not be before the step before (%v)", step.At, last)
			}
			most, last = max(most, step.Count), step.At
		}
		processes += most
	}
	if processes > processesMax {
		c.bad("groups", "have %d processes at the most, must be at most %d", processes, processesMax)
	}
}

func (s Scenario) validateFaults(c *checker) {
	for i, f := range s.Redis.Faults {
		path := elem("redis.faults", i)
		inRange(c, path+".at", f.At, 0, s.Duration)
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
		inRange(c, path+".shard", f.Shard, 0, s.Redis.Shards)
	}
}

// elem is the path of an element of a list.
func elem(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }
