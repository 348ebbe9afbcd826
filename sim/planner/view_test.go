package planner

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/render"
)

// shown writes a plan in a format.
func shown(t *testing.T, p Plan, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := (View{Plan: p, Text: "name: fleet\n", Command: "leasesim plan --seed 3"}).Write(&b, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// answered is a plan with everything that a plan can have but a miss.
func answered(t *testing.T) Plan {
	s := fleet()
	s.Limits[0].Burst = 400
	w := fragile(StressOutage)
	inner := w.f
	w.f = func(s sim.Scenario) truth {
		x := inner(s)
		x.falseRejects = max(x.falseRejects, s.Policy.Target.Seconds()/25)
		return x
	}
	s.Policy.Target = 20 * time.Millisecond
	return mustFind(t, w, Question{Scenario: s})
}

func missedPlan(t *testing.T) Plan {
	w := &world{f: rising(func(ms float64) float64 { return 0.01 + ms/1e5 })}
	return mustNotFind(t, w, Question{Scenario: fleet(), Targets: []Target{AtMost("false_reject_ratio", 0.005), AtMost("calls_per_s", 100), AtLeast("admitted_vs_central", 0.9)}})
}

func TestTheTableSaysWhatToDoAndWhy(t *testing.T) {
	table := shown(t, answered(t), render.FormatTable)
	table += strings.ReplaceAll(table, "\n", " ") // for sentences that were wrapped
	for _, want := range []string{
		"fleet  (hash ", ", seed 3)", "false_reject_ratio at most 0.5 %, bound_exceeded_by at most 0", "95 % interval",
		"Take target 100ms, ttl 400ms, burst 400: 200 lease calls per second",
		"The scenario's own policy (target 20ms, ttl 200ms, burst 400) meets the targets too, with 800 calls per second more.",
		"Under stress (clocks twice as wrong) the targets hold.",
		"Under stress (Redis away for 1s, 10 % of what counts) they do not: false_reject_ratio is 20 %, must be at most 10.5 %.",
		"Under stress (30 processes instead of 20) the targets hold.",
		"The nearest target is false_reject_ratio, with 20 % of what it tolerates left.",
		"The burst caps leases at 100ms", "--burst-max",
		"Confirmed on 8 replications of 10 s with seed", "closed form", "own policy",
		"20 % !", "The closed forms:\n", "missed", "TRADE-OFFS", "chosen", "Target:   100 * time.Millisecond", "target: 100ms", "screen", "This machine simulated",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

func TestTheTableOfAMissSaysWhatWouldHelp(t *testing.T) {
	table := shown(t, missedPlan(t), render.FormatTable)
	for _, want := range []string{
		"No policy that was tried meets the targets.", "The closest is target ", "There false_reject_ratio is 1.", "must be at most 0.5 %",
		"it would be feasible: target ", "CLOSEST MISS", "≥ 90 %", "missed",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	if strings.Contains(table, "hybrid.Config") {
		t.Errorf("there is code for what was not found\n%s", table)
	}
}

func TestTheJSONHasItsKeys(t *testing.T) {
	keys := func(p Plan) (names []string) {
		var got map[string]json.RawMessage
		if err := json.Unmarshal([]byte(shown(t, p, render.FormatJSON)), &got); err != nil {
			t.Fatal(err)
		}
		for name := range got {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	always := []string{"confidence", "confirm_seed", "duration_s", "machine", "phases", "reps", "scenario", "scenario_hash", "schema_version", "seed", "targets", "trade_offs", "verdict"}
	want := slices.Sorted(slices.Values(append([]string{"binding", "chosen", "code", "estimates", "given", "stress", "target_cap", "yaml"}, always...)))
	if got := keys(answered(t)); !slices.Equal(got, want) {
		t.Errorf("found: %q, want %q", got, want)
	}
	want = slices.Sorted(slices.Values(append([]string{"miss"}, always...)))
	if got := keys(missedPlan(t)); !slices.Equal(got, want) {
		t.Errorf("infeasible: %q, want %q", got, want)
	}
	// And it reads back: a version, the verdict, and the figures of the chosen one.
	var p Plan
	if err := json.Unmarshal([]byte(shown(t, answered(t), render.FormatJSON)), &p); err != nil || p.SchemaVersion != 1 || p.Verdict != Found || p.Chosen.Figures.CallsPerS.Mean != 200 {
		t.Errorf("%v, %+v", err, p)
	}
}

func TestTheCSVHasALinePerPolicy(t *testing.T) {
	for _, c := range []struct {
		plan Plan
		want []string
	}{{answered(t), []string{"chosen", "given", "trade_off"}}, {missedPlan(t), []string{"closest", "trade_off"}}} {
		rows, err := csv.NewReader(strings.NewReader(shown(t, c.plan, render.FormatCSV))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		var what []string
		for _, row := range rows[1:] {
			if !slices.Contains(what, row[0]) {
				what = append(what, row[0])
			}
			if i := slices.Index(rows[0], "calls_per_s.mean"); row[i] == "" || row[i] == "0" {
				t.Errorf("%q", row)
			}
		}
		if !slices.Equal(what, c.want) {
			t.Errorf("%q, want %q", what, c.want)
		}
	}
}

func TestThePageIsWholeAndLoadsNothing(t *testing.T) {
	for _, p := range []Plan{answered(t), missedPlan(t)} {
		page := shown(t, p, render.FormatHTML)
		for _, want := range []string{"<svg", "What calls buy", "Trade-offs", "name: fleet", "leasesim plan --seed 3", "screen"} {
			if !strings.Contains(page, want) {
				t.Errorf("no %q in the page of a plan that is %s", want, p.Verdict)
			}
		}
		if loads := regexp.MustCompile(`(src|href)\s*=|@import|url\(`).FindString(page); loads != "" {
			t.Errorf("the page loads something: %s", loads)
		}
	}
}

func TestAnInterruptedPlanSaysSo(t *testing.T) {
	p := answered(t)
	p.Verdict, p.Chosen, p.Given, p.Stress, p.Estimates, p.Binding, p.TargetCap, p.Code, p.YAML = Interrupted, nil, nil, nil, nil, nil, "", "", ""
	for _, format := range render.Formats {
		text := shown(t, p, format)
		if format == render.FormatTable && !strings.Contains(text, "Interrupted: nothing is confirmed") {
			t.Error(text)
		}
	}
	if err := (View{Plan: p}).Write(&bytes.Buffer{}, "xml"); err == nil {
		t.Error("xml is a format")
	}
}
