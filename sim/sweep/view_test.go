package sweep

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/render"
)

func swept(t *testing.T, own bool, texts ...string) Report {
	t.Helper()
	r, err := Sweep{Run: surface(byTarget), Set: set, Own: own}.Do(t.Context(), question, axes(t, texts...))
	if err != nil {
		t.Fatal(err)
	}
	r.Machine = sim.Machine{}
	return r
}

func shown(t *testing.T, r Report, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := (View{Report: r, Text: "name: question\n", Command: "leasesim sweep --seed 7"}).Write(&b, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTheTableHasEveryPointAndWhatItMeans(t *testing.T) {
	r := swept(t, true, "policy.target=10ms,20ms,80ms", "policy.ttl=100ms")
	r.Points[1].Figures.BoundExceededBy.Worst = 3
	table := shown(t, r, render.FormatTable)
	for _, want := range []string{
		"question  (hash ", "seed 7)", "policy.target (3) x policy.ttl (1): 3 points, 5 replications of 30 s each, all on the same seeds",
		"Δ false_reject_ratio", "invalid: policy.ttl: TTL is 100ms, must be at least 2*Target (160ms)", "exceeded by 3", "holds", "as given",
		"1 of 3 points cannot run", "a small false_reject_ratio and a small calls_per_s", "from the base (as given), paired by replication",
		"The bound is exceeded at 1 point.",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	stars := regexp.MustCompile(`(?m)^\*.* (\d+ms) `).FindAllStringSubmatch(table, -1)
	if len(stars) != 2 || !strings.Contains(stars[0][0], "10ms") || !strings.Contains(stars[1][0], "20ms") {
		t.Errorf("%q\n%s", stars, table)
	}
	// What did not run is said, and the base that lacks figures too.
	r.Points[0].Figures, r.Own.Figures, r.Finished = nil, nil, 1
	table = shown(t, r, render.FormatTable)
	for _, want := range []string{"did not run", "Interrupted: 1 of 3 points did not run.", "There are no differences, because the base (as given) has no figures."} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

func TestADifferenceThatMayBeLuckIsInParentheses(t *testing.T) {
	r := Report{Points: make([]Point, 2)}
	p := &r.Points[1]
	for _, c := range []struct {
		d    sim.Difference
		want string
	}{
		{sim.Difference{Mean: 2, Low: 1, High: 3}, "+2.0 ± 1.0"},
		{sim.Difference{Mean: -2, Low: -3, High: -1}, "-2.0 ± 1.0"},
		{sim.Difference{Mean: 2, Low: -1, High: 5}, "(+2.0 ± 3.0)"},
		{sim.Difference{}, "0"},
	} {
		p.Differences = map[string]sim.Difference{"calls_per_s": c.d}
		if got := r.difference(p, "calls_per_s"); got != c.want {
			t.Errorf("%+v: %q, want %q", c.d, got, c.want)
		}
	}
	if got := r.difference(&r.Points[0], "calls_per_s"); got != "" {
		t.Errorf("the base differs by %q", got)
	}
}

func TestTheJSONHasItsKeys(t *testing.T) {
	var got struct {
		SchemaVersion int `json:"schema_version"`
		Axes          []struct {
			Path   string
			Values []string
		}
		Objectives []Objective
		Base       int
		Own        *Point
		Points     []struct {
			Values      []string
			Front       bool
			Invalid     string
			Figures     map[string]struct{ Mean, Low, High float64 }
			Differences map[string]sim.Difference
		}
		Finished, Invalid int
	}
	if err := json.Unmarshal([]byte(shown(t, swept(t, false, "policy.target=10ms,20ms,80ms", "policy.ttl=100ms"), render.FormatJSON)), &got); err != nil {
		t.Fatal(err)
	}
	if got.SchemaVersion != 1 || got.Axes[0].Path != "policy.target" || len(got.Axes[0].Values) != 3 || got.Base != 0 || got.Own != nil || got.Finished != 2 || got.Invalid != 1 ||
		len(got.Points) != 3 || got.Points[2].Invalid == "" || got.Points[2].Figures != nil || !got.Points[1].Front ||
		got.Points[1].Figures["calls_per_s"].Mean == 0 || got.Points[1].Differences["calls_per_s"].Mean >= 0 || !slices.Equal(got.Objectives, DefaultObjectives()) {
		t.Errorf("%+v", got)
	}
}

func TestTheCSVHasALinePerPoint(t *testing.T) {
	rows, err := csv.NewReader(strings.NewReader(shown(t, swept(t, true, "policy.target=10ms,80ms", "policy.ttl=100ms"), render.FormatCSV))).ReadAll()
	if err != nil || len(rows) != 4 {
		t.Fatal(rows, err)
	}
	cell := func(row int, name string) string { return rows[row][slices.Index(rows[0], name)] }
	if cell(1, "policy.target") != "as given" || cell(1, "base") != "true" || cell(2, "policy.target") != "10ms" || cell(2, "front") != "true" || cell(2, "invalid") != "" {
		t.Errorf("%q", rows)
	}
	if cell(3, "policy.ttl") != "100ms" || !strings.Contains(cell(3, "invalid"), "TTL") || cell(3, "calls_per_s.mean") != "" {
		t.Errorf("%q", rows[3])
	}
	if cell(2, "calls_per_s.diff") == "" || cell(2, "calls_per_s.diff_low") != cell(2, "calls_per_s.diff") {
		t.Errorf("%q", rows[2])
	}
}

func TestThePageShowsLinesOrHeatMaps(t *testing.T) {
	for _, c := range []struct{ axes, wanted []string }{
		{[]string{"policy.target=10ms..1s:log:5"}, []string{"Against policy.target", "policy.target, ms", "mean, with its 95 % interval", "fill-opacity"}},
		{[]string{"policy.target=10ms,20ms", "groups.0.count=1..3:lin:3"}, []string{"Over groups.0.count and policy.target"}},
		{[]string{"policy.target=10ms,80ms", "policy.ttl=100ms", "groups.0.count=1..3:lin:3"}, nil},
	} {
		page := shown(t, swept(t, false, c.axes...), render.FormatHTML)
		for _, want := range append(c.wanted, "<svg", "The trade-off", "All points", "name: question", "leasesim sweep --seed 7") {
			if !strings.Contains(page, want) {
				t.Errorf("%v: no %q in the page", c.axes, want)
			}
		}
		if heat := strings.Contains(page, "no other point is better in every objective"); heat != (len(c.axes) == 2) {
			t.Errorf("%v: a heat map: %v", c.axes, heat)
		}
		if loads := regexp.MustCompile(`(src|href)\s*=|@import|url\(`).FindString(page); loads != "" {
			t.Errorf("the page loads something: %s", loads)
		}
	}
	if err := (View{}).Write(&bytes.Buffer{}, "xml"); err == nil {
		t.Error("xml is a format")
	}
}

func TestAnAxisIsDrawnByItsNumbers(t *testing.T) {
	for text, want := range map[string]struct {
		xs    []float64
		label string
		ok    bool
	}{
		"policy.target=10ms,1s":            {[]float64{10, 1000}, "policy.target, ms", true},
		"clock.offset=0,10ms":              {[]float64{0, 10}, "clock.offset, ms", true},
		"groups.0.count=1,5":               {[]float64{1, 5}, "groups.0.count", true},
		"network.loss=1%,5%":               {[]float64{1, 5}, "network.loss, %", true},
		"policy.overcommit=0,5":            {[]float64{0, 5}, "policy.overcommit", true},
		"clock.offset=-5s,0,5s":            {[]float64{-5000, 0, 5000}, "clock.offset, ms", true},
		"workload.kind=poisson,sync":       {[]float64{0, 1}, "workload.kind", false},
		"policy.target=1s,10ms":            {[]float64{0, 1}, "policy.target", false},
		"workload.rate=90/m,100/s":         {[]float64{0, 1}, "workload.rate", false},
		"clock.offset=10ms,normal(0s,1ms)": {[]float64{0, 1}, "clock.offset", false},
	} {
		xs, label, ok := numbers(axes(t, text)[0])
		if !slices.Equal(xs, want.xs) || label != want.label || ok != want.ok {
			t.Errorf("%s: %v %q %v", text, xs, label, ok)
		}
	}
}
