package scenario

import (
	"math"
	"slices"
	"strings"
	"time"
)

// validateWorkload checks what a kind of workload needs, and fields that depend on others.
func (s Scenario) validateWorkload(c *checker, path string, w Workload) {
	if w.Rate != 0 && w.Load != 0 {
		c.bad(path+".load", "is %v and rate is %s, but both say how many requests there are; one of them must be 0",
			w.Load, asText(w.Rate))
	}
	burst := s.smallestBurst()
	if w.Cost.Max > burst {
		c.bad(path+".cost", "is %s, must be at most the smallest burst (%d): more is never admitted",
			asText(w.Cost), burst)
	}
	switch w.Kind {
	case Flash:
		inRange(c, path+".at", w.At, 0, s.Duration)
	case Sync:
		inRange(c, path+".within", w.Within, 0, w.Every)
	case Closed:
		// A client that is answered at once and never thinks would ask for ever at one instant.
		if !(typical(w.Think.Dist) >= float64(meanMin)) {
			c.bad(path+".think", "is %s, must take %v or more in the mean", asText(w.Think), meanMin)
		}
	case Replay:
		s.validateTrace(c, path, w)
	}
}

func (s Scenario) validateTrace(c *checker, path string, w Workload) {
	path += ".file"
	if w.Trace == nil || len(w.Trace.Requests) == 0 {
		c.bad(path, "is %q: there is no trace with requests to replay", w.File)
		return
	}
	requests := w.Trace.Requests
	burst := s.smallestBurst()
	var last time.Duration
	for i, r := range requests {
		switch {
		case r.At < last:
			c.bad(path, "request %d of the trace comes at %v, before the one before it (%v)", i, r.At, last)
		case r.Process < 0 || r.Key < 0:
			c.bad(path, "request %d of the trace has process %d and key %d, must be 0 or more", i, r.Process, r.Key)
		case r.Cost < 1:
			c.bad(path, "request %d of the trace costs %d tokens, must be 1 or more", i, r.Cost)
		case r.Cost > burst:
			c.bad(path, "request %d of the trace costs %d tokens, must be at most the smallest burst (%d): "+
				"more is never admitted", i, r.Cost, burst)
		default:
			last = r.At
			continue
		}
		return // one is enough: a trace is right or wrong as a whole
	}
	if first := requests[0].At; first >= s.Duration {
		c.bad(path, "the first request of the trace comes at %v, must be before the end of the run (%v)",
			first, s.Duration)
	}
	if w.Repeated && last < meanMin {
		c.bad(path, "the trace lasts %v, must last %v or more to be repeated", last, meanMin)
	}
}

// smallestBurst is the largest cost that can ever be admitted, as far as the limits are valid.
func (s Scenario) smallestBurst() int64 {
	n := int64(math.MaxInt64)
	for _, l := range s.Limits {
		if b := l.Capacity(); b > 0 {
			n = min(n, b)
		}
	}
	return n
}

// sound demands a distribution that can be drawn from. The text is d's.
func (c *checker) sound(path string, d Dist, text string) bool {
	if !slices.Contains(distKinds, d.Kind) {
		c.bad(path, "is %s, but there is no distribution %q", text, d.Kind)
		return false
	}
	if math.IsNaN(d.P-d.P) || math.IsNaN(d.Q-d.Q) { // so is Inf-Inf
		c.bad(path, "has the parameters %v and %v, must be finite", d.P, d.Q)
		return false
	}
	if err := d.validate(text); err != nil {
		c.bad(path, "%s", strings.TrimPrefix(err.Error(), ErrQuantity.Error()+": "))
		return false
	}
	return true
}

// inside demands that no parameter of d reaches bound. A draw may; who draws it cuts it off there.
func (c *checker) inside(path string, d Dist, bound float64, text string, boundText any) {
	if math.Abs(d.P) >= bound || math.Abs(d.Q) >= bound {
		c.bad(path, "is %s, must be strictly within +-%v", text, boundText)
	}
}

// around demands the error of a clock. A plain value means both directions, so a negative one would
// not mean what it says.
func (c *checker) around(path string, d Dist, text string, bound float64, boundText any) {
	if d.Kind == DistConstant && d.P < 0 {
		_, field, _ := strings.Cut(path[strings.LastIndex(path, "clock."):], ".")
		c.bad(path, "is %s, but a plain %s d means uniform in [-d, d]; for one value write uniform(%[1]s,%[1]s)",
			text, field)
	} else if c.sound(path, d, text) {
		c.inside(path, d, bound, text, boundText)
	}
}

// length demands a distribution of lengths of time: none of its parameters is negative.
func (c *checker) length(path string, d DurationDist) {
	if !c.sound(path, d.Dist, asText(d)) {
		return
	}
	if d.P < 0 { // Q is not below it, or is a shape
		c.bad(path, "is %s, must not be negative", asText(d))
		return
	}
	c.inside(path, d.Dist, float64(DurationMax)+1, asText(d), DurationMax)
}

// typical is about how large what d draws is.
func typical(d Dist) float64 {
	if d.Kind == DistUniform {
		return d.Q
	}
	return d.P
}
