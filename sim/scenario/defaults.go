package scenario

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Defaults returns s with all defaults filled in. The default name of a group has the group's index: group-0.
func (s Scenario) Defaults() Scenario {
	if len(s.Groups) == 0 {
		s.Groups = []Group{{Name: "all"}}
	}
	fill(&s.Duration, s.lasts())
	fill(&s.Seed, 1)
	fill(&s.Reps, 10)
	fill(&s.CallTimeout, lease.DefaultCallTimeout)
	fill(&s.Keys.Count, 1)
	s.Groups = slices.Clone(s.Groups)
	for i, g := range s.Groups {
		fill(&g.Name, fmt.Sprintf("group-%d", i))
		fill(&g.Count, 1)
		fill(&g.Weight, max(s.Policy.Weight, 1))
		fill(&g.Share, float64(max(g.Count, 0)))
		fill(&g.Headroom, s.Policy.Headroom)
		fill(&g.Shadow, s.Policy.Shadow)
		if g.Workload != nil {
			w := g.Workload.Defaults(s.Duration)
			g.Workload = &w
		}
		s.Groups[i] = g
	}
	s.Workload = s.Workload.Defaults(s.Duration)
	fill(&s.Network.RoundTrip, DurationDist{Dist{
		Kind: DistLognormal, P: float64(800 * time.Microsecond), Q: float64(3500 * time.Microsecond),
	}})
	s.Network.Partitions = slices.Clone(s.Network.Partitions)
	for i := range s.Network.Partitions {
		fill(&s.Network.Partitions[i].Part, 1)
	}
	fill(&s.Redis.ServiceTime, Constantly(16*time.Microsecond))
	fill(&s.Redis.ExchangeTime, Constantly(3*time.Microsecond))
	fill(&s.Redis.WakeTime, Constantly(39*time.Microsecond))
	fill(&s.Redis.Shards, 1)
	return s
}

// lasts returns the default of Duration: the time to play traces, if traces are the only load; otherwise 30 s
// or, if that is longer, 25 sliding windows, of which 20 must count.
func (s *Scenario) lasts() time.Duration {
	if length := s.played(); length > 0 {
		return min(length, DurationMax)
	}
	usual := 30 * time.Second
	for _, l := range s.Limits {
		if l.Kind == lease.KindSliding && l.Per <= DurationMax/25 {
			usual = max(usual, 25*l.Per)
		}
	}
	return usual
}

// played returns the time until the last request of all traces is answered, or 0 with any other load.
func (s *Scenario) played() (length time.Duration) {
	for _, g := range s.Groups {
		w := cmp.Or(g.Workload, &s.Workload)
		if w.Kind != Replay || w.Trace == nil || len(w.Trace.Requests) == 0 {
			return 0
		}
		answer := cmp.Or(s.CallTimeout, lease.DefaultCallTimeout)
		if w.Verb == VerbWait {
			answer = cmp.Or(w.Deadline, deadlineDefault)
		}
		last := w.Trace.Requests[len(w.Trace.Requests)-1].At
		length = max(length, last.Truncate(time.Millisecond)+time.Millisecond+answer)
	}
	return length
}

const deadlineDefault = time.Second

// Defaults returns w with all defaults filled in, for a run of length duration.
func (w Workload) Defaults(duration time.Duration) Workload {
	fill(&w.Kind, Poisson)
	fill(&w.Verb, VerbAllow)
	if w.Rate == 0 && w.Load == 0 {
		w.Load = 0.9
	}
	fill(&w.Cost, Cost{Min: 1, Max: 1})
	fill(&w.Deadline, deadlineDefault)
	fill(&w.On, 100*time.Millisecond)
	fill(&w.Off, 900*time.Millisecond)
	fill(&w.At, duration/3)
	fill(&w.For, duration/6)
	fill(&w.Factor, 10)
	fill(&w.Every, max(500*time.Millisecond, w.Within))
	if w.Kind == Boundary {
		fill(&w.Within, min(10*time.Millisecond, max(0, w.Every)))
	}
	return w
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Hash identifies the scenario without its seed: equal scenarios have equal hashes on all machines.
func (s Scenario) Hash() string {
	s = s.Defaults()
	s.Seed = 0
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("sim: a scenario is plain data: %v", err)) // a NaN, which Validate refuses
	}
	for _, w := range s.Workloads() {
		if w.Trace != nil {
			text = append(text, w.Trace.Sum...)
		}
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// RateOf returns the number of requests per second of all processes with workload w.
func (s *Scenario) RateOf(w *Workload) float64 {
	if w.Rate > 0 {
		return float64(w.Rate)
	}
	return w.Load * s.LeastRate() * float64(s.Keys.Count) / w.tokens()
}

// tokens returns the mean of the final cost of a request.
func (w *Workload) tokens() float64 {
	if !w.Actual.IsZero() {
		return w.Actual.Mean()
	}
	return w.Cost.Mean()
}

// Reserves reports whether requests of w reserve tokens until their final cost is known.
func (w *Workload) Reserves() bool { return !w.Actual.IsZero() }

// FieldName returns a field's name in scenario files and in paths: the Go name in snake case, such as
// round_trip for RoundTrip. The field Per of a limit is period.
func FieldName(goName string) string {
	if goName == "Per" {
		return "period"
	}
	return strings.ToLower(wordEnd.ReplaceAllString(goName, "${1}_$2"))
}

var wordEnd = regexp.MustCompile(`([^A-Z])([A-Z])`)
