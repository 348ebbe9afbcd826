package planner

import (
	"fmt"
	"go/format"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// Code is Go source that declares the configuration of s, with its imports and a comment that says where it comes from:
// all of a file but its package clause.
func Code(s sim.Scenario, p Plan) string {
	var b strings.Builder
	b.WriteString("import (\n\t\"time\"\n\n\t\"github.com/yuzhi-go/yuzhi/hybrid\"\n)\n\n")
	fmt.Fprintf(&b, "// limits was chosen by leasesim plan for the scenario %q (%s, seed %d).\n", p.Scenario, p.ScenarioHash, p.Seed)
	b.WriteString("var limits = hybrid.Config{\n\tLimits: []hybrid.Limit{\n")
	for _, l := range s.Limits {
		fmt.Fprintf(&b, "\t\t%s, // %s\n", limitCode(l), l)
	}
	b.WriteString("\t},\n\tPolicy: hybrid.Policy{\n")
	policy := s.Policy
	field := func(name string, value any, zero bool) {
		if !zero {
			fmt.Fprintf(&b, "\t\t%s: %v,\n", name, value)
		}
	}
	field("Target", durationCode(policy.Target), false)
	field("TTL", durationCode(policy.TTL), false)
	field("MinBatch", policy.MinBatch, policy.MinBatch == 0)
	field("MaxBatch", policy.MaxBatch, policy.MaxBatch == 0)
	field("Overcommit", policy.Overcommit, policy.Overcommit == 0)
	weights := false
	for _, g := range s.Groups {
		weights = weights || g.Weight != s.Groups[0].Weight
	}
	if weights {
		for _, g := range s.Groups {
			fmt.Fprintf(&b, "\t\t// Weight: %d, // of the processes of %q\n", g.Weight, g.Name)
		}
	} else {
		field("Weight", s.Groups[0].Weight, s.Groups[0].Weight <= 1)
	}
	if policy.ColdStart == lease.ColdStartAllow {
		field("ColdStart", "hybrid.ColdStartAllow", false)
	}
	switch policy.Fallback {
	case lease.FallbackDeny:
		field("Fallback", "hybrid.FallbackDeny", false)
	case lease.FallbackAllowAll:
		field("Fallback", "hybrid.FallbackAllowAll", false)
	}
	field("StartEmpty", true, !policy.StartEmpty)
	field("StrictExpiry", true, !policy.StrictExpiry)
	b.WriteString("\t},\n")
	if s.CallTimeout != lease.DefaultCallTimeout {
		fmt.Fprintf(&b, "\tCallTimeout: %s,\n", durationCode(s.CallTimeout))
	}
	b.WriteString("}\n")
	source, err := format.Source([]byte(b.String()))
	if err != nil {
		panic(fmt.Sprintf("planner: the generated code is no Go: %v\n%s", err, b.String()))
	}
	return string(source)
}

// limitCode is an expression for l.
func limitCode(l lease.Limit) string {
	for _, u := range []struct {
		per  time.Duration
		name string
	}{{time.Second, "PerSecond"}, {time.Minute, "PerMinute"}, {time.Hour, "PerHour"}} {
		if l.Per != u.per {
			continue
		}
		code := fmt.Sprintf("hybrid.%s(%d)", u.name, l.Tokens)
		if l.Burst != 0 && l.Burst != l.Tokens {
			code += fmt.Sprintf(".WithBurst(%d)", l.Burst)
		}
		return code
	}
	code := fmt.Sprintf("{Tokens: %d, Per: %s", l.Tokens, durationCode(l.Per))
	if l.Burst != 0 {
		code += fmt.Sprintf(", Burst: %d", l.Burst)
	}
	return code + "}"
}

// durationCode is an expression for d in the largest unit that holds it whole.
func durationCode(d time.Duration) string {
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "Hour"}, {time.Minute, "Minute"}, {time.Second, "Second"}, {time.Millisecond, "Millisecond"}, {time.Microsecond, "Microsecond"}} {
		if d%u.length == 0 && d != 0 {
			if d == u.length {
				return "time." + u.name
			}
			return strconv.FormatInt(int64(d/u.length), 10) + " * time." + u.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + " * time.Nanosecond"
}

// YAML is the policy of s as a part of a scenario file; and the limits, where they are not those given.
func YAML(s, given sim.Scenario) string {
	part := sim.Scenario{Policy: s.Policy}
	if !slices.Equal(s.Limits, given.Limits) {
		part.Limits = s.Limits
	}
	text, err := scenfile.Marshal(part)
	if err != nil {
		panic(fmt.Sprintf("planner: a policy is plain data: %v", err))
	}
	return string(text)
}
