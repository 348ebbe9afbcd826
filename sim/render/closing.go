package render

import (
	"fmt"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// closing are the sections at the end of every page: what was simulated, and how to do it again.
func (r Result) closing() []Section {
	sections := []Section{
		{Title: "Policy", Facts: Policy(r.Scenario)},
		{Title: "Scenario", Facts: scenarioFacts(r.Scenario)},
	}
	if r.Text != "" {
		sections = append(sections, Section{Title: "Scenario file", Code: r.Text})
	}
	if r.Command != "" {
		sections = append(sections, Section{
			Title: "How to repeat it",
			Text:  []string{fmt.Sprintf("The same scenario (hash %s) and seed give the same figures on any machine.", r.Report.ScenarioHash)},
			Code:  r.Command,
		})
	}
	return sections
}

// Policy are the facts of a scenario's policy, with what its defaults come to.
func Policy(s sim.Scenario) []Fact {
	s = s.Defaults()
	c := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout)
	return []Fact{
		{"target", given(c.Target.String(), s.Policy.Target == c.Target)},
		{"ttl", given(c.TTL.String(), s.Policy.TTL == c.TTL)},
		{"min_batch", Number(float64(max(s.Policy.MinBatch, 1)))},
		{"max_batch", orWords(s.Policy.MaxBatch, "what the limit can give")},
		{"overcommit", Number(float64(s.Policy.Overcommit))},
		{"weight", Number(float64(max(s.Policy.Weight, 1)))},
		{"cold_start", map[lease.ColdStart]string{lease.ColdStartDeny: "deny", lease.ColdStartAllow: "allow"}[s.Policy.ColdStart]},
		{"fallback", map[lease.Fallback]string{
			lease.FallbackLocalShare: "local_share", lease.FallbackDeny: "deny", lease.FallbackAllowAll: "allow_all",
		}[s.Policy.Fallback]},
		{"start_empty", fmt.Sprint(s.Policy.StartEmpty)},
		{"strict_expiry", fmt.Sprint(s.Policy.StrictExpiry)},
		{"call_timeout", s.CallTimeout.String()},
	}
}

// given marks what follows from the limits and was not said.
func given(value string, said bool) string {
	if said {
		return value
	}
	return value + " (default)"
}

func orWords(n int64, words string) string {
	if n == 0 {
		return words
	}
	return Number(float64(n))
}

func scenarioFacts(s sim.Scenario) []Fact {
	facts := []Fact{
		{"limits", limitsText(s.Limits)},
		{"keys", keysText(s.Keys)},
	}
	for _, g := range s.Groups {
		facts = append(facts, Fact{"group " + g.Name, groupText(g)})
	}
	facts = append(facts,
		Fact{"workload", workloadText(s.Workload)},
		Fact{"round trip", textOf(s.Network.RoundTrip)},
		Fact{"Redis", redisText(s.Redis)},
		Fact{"clock offset", textOf(s.Clock.Offset)},
		Fact{"clock drift", textOf(s.Clock.Drift)},
	)
	if n := s.Network; n.Loss+n.LostReplies+n.Duplicates > 0 {
		facts = append(facts, Fact{"network faults", fmt.Sprintf("%s lost, %s of replies lost, %s twice", textOf(n.Loss), textOf(n.LostReplies), textOf(n.Duplicates))})
	}
	for _, p := range s.Network.Partitions {
		of := "all groups"
		if p.Group != "" {
			of = p.Group
		}
		facts = append(facts, Fact{"partition", fmt.Sprintf("at %v for %v, %s", p.At, p.For, of)})
	}
	for _, f := range s.Redis.Faults {
		facts = append(facts, Fact{"Redis fault", faultText(f)})
	}
	return facts
}

func keysText(k sim.Keys) string {
	if k.Zipf == 0 || k.Count < 2 {
		return Number(float64(k.Count))
	}
	return fmt.Sprintf("%s, Zipf %s", Number(float64(k.Count)), Number(k.Zipf))
}

func groupText(g sim.Group) string {
	parts := []string{Count(g.Count, "process")}
	if g.Weight > 1 {
		parts = append(parts, fmt.Sprintf("weight %d", g.Weight))
	}
	if g.Skew > 0 {
		parts = append(parts, "skew "+Number(g.Skew))
	}
	if g.Workload != nil {
		parts = append(parts, workloadText(*g.Workload))
	}
	if g.Clock != nil {
		parts = append(parts, "clocks of its own")
	}
	if g.Pauses.Every > 0 {
		parts = append(parts, fmt.Sprintf("paused every %v for %s", g.Pauses.Every, textOf(g.Pauses.For)))
	}
	if g.Restarts.Every > 0 {
		parts = append(parts, fmt.Sprintf("restarted every %v", g.Restarts.Every))
	}
	for _, step := range g.Scale {
		parts = append(parts, fmt.Sprintf("%d from %v", step.Count, step.At))
	}
	return strings.Join(parts, ", ")
}

func redisText(r sim.Redis) string {
	parts := []string{textOf(r.ServiceTime) + " per call", Count(r.Shards, "shard")}
	if r.ClientTime {
		parts = append(parts, "by the callers' clocks")
	}
	return strings.Join(parts, ", ")
}

func faultText(f sim.RedisFault) string {
	s := fmt.Sprintf("%s at %v", f.Kind, f.At)
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"for", f.For}, {"by", f.By}, {"lost", f.Lost}} {
		if d.value != 0 {
			s += fmt.Sprintf(" %s %v", d.name, d.value)
		}
	}
	if f.Shard > 0 {
		s += fmt.Sprintf(", shard %d", f.Shard)
	}
	return s
}

// textOf is a quantity as a scenario file has it.
func textOf(q interface{ MarshalText() ([]byte, error) }) string {
	b, err := q.MarshalText()
	if err != nil {
		return err.Error()
	}
	return string(b)
}
