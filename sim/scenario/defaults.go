package scenario

import (
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

// Defaults is s with every zero field that has a default filled in. A group without a name is
// called by its place in Groups: group-0, group-1 and so on.
func (s Scenario) Defaults() Scenario {
	fill(&s.Duration, 30*time.Second)
	fill(&s.Seed, 1)
	fill(&s.Reps, 10)
	fill(&s.CallTimeout, lease.DefaultCallTimeout)
	fill(&s.Keys.Count, 1)
	groups := s.Groups
	if len(groups) == 0 {
		groups = []Group{{Name: "all"}}
	}
	s.Groups = make([]Group, len(groups))
	for i, g := range groups {
		fill(&g.Name, fmt.Sprintf("group-%d", i))
		fill(&g.Count, 1)
		fill(&g.Weight, max(s.Policy.Weight, 1))
		fill(&g.Share, float64(max(g.Count, 0)))
		fill(&g.Headroom, s.Policy.Headroom)
		fill(&g.Shadow, s.Policy.Shadow)
		if g.Workload != nil {
			w := s.atBoundaries(*g.Workload).Defaults(s.Duration)
			g.Workload = &w
		}
		s.Groups[i] = g
	}
	s.Workload = s.atBoundaries(s.Workload).Defaults(s.Duration)
	fill(&s.Network.RoundTrip, Constantly(time.Millisecond))
	s.Network.Partitions = slices.Clone(s.Network.Partitions)
	for i := range s.Network.Partitions {
		fill(&s.Network.Partitions[i].Part, 1)
	}
	fill(&s.Redis.ServiceTime, Constantly(15*time.Microsecond))
	fill(&s.Redis.Shards, 1)
	return s
}

// atBoundaries is w with what Boundary means where it says nothing.
func (s *Scenario) atBoundaries(w Workload) Workload {
	if w.Kind != Boundary {
		return w
	}
	fill(&w.Within, 10*time.Millisecond)
	if i := slices.IndexFunc(s.Limits, lease.Limit.Windowed); i >= 0 {
		fill(&w.Every, 2*s.Limits[i].Per) // a fixed window is full again when nobody came in the one before
	}
	return w
}

// Defaults is w with every zero field that has a default filled in, for a run of that duration.
func (w Workload) Defaults(duration time.Duration) Workload {
	fill(&w.Kind, Poisson)
	fill(&w.Verb, VerbAllow)
	if w.Rate == 0 && w.Load == 0 {
		w.Load = 0.9
	}
	fill(&w.Cost, Cost{1, 1})
	fill(&w.Deadline, time.Second)
	fill(&w.On, 100*time.Millisecond)
	fill(&w.Off, 900*time.Millisecond)
	fill(&w.Alpha, 1.5)
	fill(&w.Burst, 20)
	fill(&w.Period, duration)
	fill(&w.Swing, 0.8)
	fill(&w.At, duration/3)
	fill(&w.For, duration/6)
	fill(&w.Factor, 10)
	fill(&w.Every, 500*time.Millisecond)
	fill(&w.Clients, 10)
	fill(&w.Think, DurationDist{Dist{Kind: DistExp, P: float64(100 * time.Millisecond)}})
	fill(&w.Backoff, 10*time.Millisecond)
	return w
}

// fill sets a zero value to its default.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Hash identifies the scenario without its seed: equal scenarios have equal hashes, on any machine.
func (s Scenario) Hash() string {
	s = s.Defaults()
	s.Seed = 0
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("sim: a scenario is plain data: %v", err)) // NaN, which Validate refuses
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// RateOf is the requests per second of all processes that w is for.
func (s *Scenario) RateOf(w *Workload) float64 {
	if w.Rate > 0 {
		return float64(w.Rate)
	}
	least := s.Limits[0].Rate()
	for _, l := range s.Limits {
		least = min(least, l.Rate())
	}
	cost := float64(w.Cost.Min+w.Cost.Max) / 2
	if !w.Actual.IsZero() {
		cost = w.Actual.Mean()
	}
	return w.Load * least * float64(s.Keys.Count) / cost
}

// Reserves reports whether w's requests settle later what they cost.
func (w *Workload) Reserves() bool { return !w.Actual.IsZero() || w.Cancelled > 0 }

// FieldName is what a field is called in scenario files and in paths: its Go name in snake case.
// TTL is ttl, RoundTrip is round_trip.
func FieldName(goName string) string {
	return strings.ToLower(wordEnd.ReplaceAllString(goName, "${1}_$2"))
}

var wordEnd = regexp.MustCompile(`([^A-Z])([A-Z])`)
