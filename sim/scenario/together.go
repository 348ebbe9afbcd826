package scenario

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// checkPolicy demands limits and a policy that a bucket can be configured with.
func (s *Scenario) checkPolicy(c *checker) {
	config := s.Policy.ConfigFor(s.Limits, 0, max(s.CallTimeout, 0))
	for _, m := range unjoined(config.Validate(), lease.ErrInvalidConfig) {
		path := "policy"
		var i int
		if _, err := fmt.Sscanf(m, "limit %d:", &i); err == nil {
			path = elem("limits", i)
			_, m, _ = strings.Cut(m, lease.ErrInvalidLimit.Error()+": ")
		}
		c.bad(path, "%s", m)
	}
}

func (s *Scenario) checkGroups(c *checker) {
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
			s.checkWorkload(c, path+".workload", *g.Workload)
		}
		most, last := g.Count, time.Duration(0)
		for j, step := range g.Scale {
			path := elem(path+".scale", j)
			between(c, path+".at", step.At, 0, s.Duration)
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

func (s *Scenario) checkFaults(c *checker) {
	for i, f := range s.Redis.Faults {
		path := elem("redis.faults", i)
		between(c, path+".at", f.At, 0, s.Duration)
		switch f.Kind {
		case FaultOutage, FaultHang, FaultSlow: // they are nothing without a length
			between(c, path+".for", f.For, 1, DurationMax)
		}
		switch f.Kind {
		case FaultSlow:
			between(c, path+".by", f.By, 1, DurationMax)
		case FaultClockStep:
			if f.By == 0 {
				c.bad(path+".by", "is 0s, must be how far the clock jumps, forwards or backwards")
			}
			between(c, path+".by", f.By, -offsetMax, offsetMax)
		}
		between(c, path+".shard", f.Shard, 0, s.Redis.Shards)
	}
}

// checkWorkload checks what a kind of workload needs.
func (s *Scenario) checkWorkload(c *checker, path string, w Workload) {
	if w.Rate != 0 && w.Load != 0 {
		c.bad(path+".load", "is %v and rate is %s, but both say how many requests there are; one of them must be 0",
			w.Load, asText(w.Rate))
	}
	if burst := s.smallestBurst(); w.Cost.Max > burst {
		c.bad(path+".cost", "is %s, must be at most the smallest burst (%d): more is never admitted",
			asText(w.Cost), burst)
	}
	switch w.Kind {
	case Flash:
		between(c, path+".at", w.At, 0, s.Duration)
	case Sync:
		between(c, path+".within", w.Within, 0, w.Every)
	case Closed:
		typical := w.Think.P
		if w.Think.Kind == DistUniform {
			typical = w.Think.Q
		}
		if typical < float64(meanMin) { // a client that is answered at once would ask for ever at one instant
			c.bad(path+".think", "is %s, must take %v or more in the mean", asText(w.Think), meanMin)
		}
	case Replay:
		s.checkTrace(c, path+".file", w)
	}
}

// checkTrace reports the first thing that is wrong: a trace is right or wrong as a whole.
func (s *Scenario) checkTrace(c *checker, path string, w Workload) {
	if w.Trace == nil || len(w.Trace.Requests) == 0 {
		c.bad(path, "is %q: there is no trace with requests to replay", w.File)
		return
	}
	burst := s.smallestBurst()
	var last time.Duration
	for i, r := range w.Trace.Requests {
		message := ""
		switch {
		case r.At < last:
			message = fmt.Sprintf("comes at %v, before the one before it (%v)", r.At, last)
		case r.Process < 0 || r.Key < 0:
			message = fmt.Sprintf("has process %d and key %d, must be 0 or more", r.Process, r.Key)
		case r.Cost < 1:
			message = fmt.Sprintf("costs %d tokens, must be 1 or more", r.Cost)
		case r.Cost > burst:
			message = fmt.Sprintf("costs %d tokens, must be at most the smallest burst (%d): more is never admitted",
				r.Cost, burst)
		}
		if message != "" {
			c.bad(path, "request %d of the trace %s", i, message)
			return
		}
		last = r.At
	}
	if first := w.Trace.Requests[0].At; first >= s.Duration {
		c.bad(path, "the first request of the trace comes at %v, must be before the end of the run (%v)",
			first, s.Duration)
	}
	if w.Repeated && last < meanMin {
		c.bad(path, "the trace lasts %v, must last %v or more to be repeated", last, meanMin)
	}
}

// smallestBurst is the largest cost that can ever be admitted.
func (s *Scenario) smallestBurst() int64 {
	n := int64(math.MaxInt64)
	for _, l := range s.Limits {
		n = min(n, l.Capacity())
	}
	return n
}
