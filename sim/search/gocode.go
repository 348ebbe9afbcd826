package search

import (
	"fmt"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// goCode is a Go expression for the configuration of s: its limits, and of its policy what a plan
// chooses and what is done while Redis is away.
func goCode(s sim.Scenario) string {
	var b strings.Builder
	b.WriteString("hybrid.Config{\n\tLimits: []hybrid.Limit{\n")
	for _, l := range s.Limits {
		fmt.Fprintf(&b, "\t\t{Tokens: %d, Per: %s, Burst: %d},\n", l.Tokens, durationCode(l.Per), l.Capacity())
	}
	b.WriteString("\t},\n\tPolicy: hybrid.Policy{\n")
	fmt.Fprintf(&b, "\t\tTarget:     %s,\n", durationCode(s.Policy.Target))
	fmt.Fprintf(&b, "\t\tTTL:        %s,\n", durationCode(s.Policy.TTL))
	fmt.Fprintf(&b, "\t\tOvercommit: %d,\n", s.Policy.Overcommit)
	fallback := map[lease.Fallback]string{
		lease.FallbackLocalShare: "LocalShare", lease.FallbackDeny: "Deny", lease.FallbackAllowAll: "AllowAll",
	}
	fmt.Fprintf(&b, "\t\tFallback:   hybrid.Fallback%s,\n\t\t// what else the scenario sets stays as it is\n", fallback[s.Policy.Fallback])
	b.WriteString("\t},\n}\n")
	return b.String()
}

// durationCode is an expression for d in the largest unit that holds it whole.
func durationCode(d time.Duration) string {
	for unit, name := range map[time.Duration]string{time.Hour: "Hour", time.Minute: "Minute", time.Second: "Second"} {
		if d == unit {
			return "time." + name
		}
	}
	switch {
	case d%time.Second == 0:
		return fmt.Sprintf("%d * time.Second", d/time.Second)
	case d%time.Millisecond == 0:
		return fmt.Sprintf("%d * time.Millisecond", d/time.Millisecond)
	}
	return fmt.Sprintf("%d * time.Nanosecond", d)
}
