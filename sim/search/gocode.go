package search

import (
	"fmt"
	"go/format"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// goCode is Go source that declares the configuration of s, with its imports and a comment that says
// where it comes from: all of a file but its package clause.
func goCode(s sim.Scenario, p Plan) string {
	var b strings.Builder
	b.WriteString("import (\n\t\"time\"\n\n\t\"github.com/yuzhi-go/yuzhi/hybrid\"\n)\n\n")
	fmt.Fprintf(&b, "// limits was chosen by leasesim plan for the scenario %q (%s, seed %d).\n", p.Scenario, p.ScenarioHash, p.Seed)
	b.WriteString("var limits = hybrid.Config{\n\tLimits: []hybrid.Limit{\n")
	for _, l := range s.Limits {
		fmt.Fprintf(&b, "{Tokens: %d, Per: %s, Burst: %d}, // %s\n", l.Tokens, durationCode(l.Per), l.Burst, l)
	}
	b.WriteString("},\nPolicy: hybrid.Policy{\n")
	policy := s.Policy
	weights := slices.ContainsFunc(s.Groups, func(g sim.Group) bool { return g.Weight != s.Groups[0].Weight })
	if weights {
		policy.Weight = 0 // processes differ; a comment names their weights
	} else if policy.Weight = s.Groups[0].Weight; policy.Weight == 1 {
		policy.Weight = 0
	}
	for _, field := range []struct {
		name, value string
		given       bool
	}{
		{"Target", durationCode(policy.Target), true},
		{"TTL", durationCode(policy.TTL), true},
		{"MinBatch", fmt.Sprint(policy.MinBatch), policy.MinBatch != 0},
		{"MaxBatch", fmt.Sprint(policy.MaxBatch), policy.MaxBatch != 0},
		{"Overcommit", fmt.Sprint(policy.Overcommit), policy.Overcommit != 0},
		{"Weight", fmt.Sprint(policy.Weight), policy.Weight != 0},
		{"ColdStart", "hybrid.ColdStartAllow", policy.ColdStart == lease.ColdStartAllow},
		{"Fallback", "hybrid.FallbackDeny", policy.Fallback == lease.FallbackDeny},
		{"Fallback", "hybrid.FallbackAllowAll", policy.Fallback == lease.FallbackAllowAll},
		{"StartEmpty", "true", policy.StartEmpty},
		{"StrictExpiry", "true", policy.StrictExpiry},
	} {
		if field.given {
			fmt.Fprintf(&b, "%s: %s,\n", field.name, field.value)
		}
	}
	for _, g := range s.Groups {
		if weights {
			fmt.Fprintf(&b, "// Weight: %d, // of the processes of %q\n", g.Weight, g.Name)
		}
	}
	b.WriteString("},\n")
	if s.CallTimeout != lease.DefaultCallTimeout {
		fmt.Fprintf(&b, "CallTimeout: %s,\n", durationCode(s.CallTimeout))
	}
	b.WriteString("}\n")
	source, err := format.Source([]byte(b.String()))
	if err != nil {
		panic(fmt.Sprintf("search: the generated code is no Go: %v\n%s", err, b.String()))
	}
	return string(source)
}

// durationCode is an expression for d in the largest unit that holds it whole.
func durationCode(d time.Duration) string {
	units := []time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond, time.Microsecond, time.Nanosecond}
	names := []string{"Hour", "Minute", "Second", "Millisecond", "Microsecond", "Nanosecond"}
	i := slices.IndexFunc(units, func(unit time.Duration) bool { return d%unit == 0 && d != 0 || unit == 1 })
	if d == units[i] {
		return "time." + names[i]
	}
	return fmt.Sprintf("%d * time.%s", d/units[i], names[i])
}

// yamlCode is the policy of s as a part of a scenario file; and the limits, where they are not those
// given.
func yamlCode(s, given sim.Scenario) string {
	part := sim.Scenario{Policy: s.Policy}
	if !slices.Equal(s.Limits, given.Limits) {
		part.Limits = s.Limits
	}
	text, err := scenfile.Marshal(part)
	if err != nil {
		panic(fmt.Sprintf("search: a policy is plain data: %v", err))
	}
	return string(text)
}
