package view

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// go test ./sim/view -update writes what the reports look like now.
var update = flag.Bool("update", false, "write the golden files")

// written is a document in a format.
func written(t *testing.T, d Document, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.Write(&b, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// says checks that a text has everything in it. Line breaks of the text count as blanks.
func says(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) && !strings.Contains(strings.ReplaceAll(text, "\n", " "), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestReportsLookAsTheyDid(t *testing.T) {
	for name, got := range map[string]string{
		"run.txt":     written(t, Run(madeUp()), FormatTable),
		"run.csv":     written(t, Run(madeUp()), FormatCSV),
		"run.json":    written(t, Run(madeUp()), FormatJSON),
		"compare.txt": written(t, Comparison(madeUp()), FormatTable),
		"compare.csv": written(t, Comparison(madeUp()), FormatCSV),
	} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is now\n%s\nand was\n%s\n(go test ./sim/view -update, if that is meant)", path, got, want)
		}
	}
}

func TestJSONIsTheReportItself(t *testing.T) {
	decode := func(d Document, into any) {
		t.Helper()
		decoder := json.NewDecoder(strings.NewReader(written(t, d, FormatJSON)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(into); err != nil {
			t.Error(err)
		}
	}
	for _, show := range []func(Result) Document{Run, Comparison} {
		var got sim.Report
		if decode(show(madeUp()), &got); !reflect.DeepEqual(got, madeUp().Report) {
			t.Errorf("got %+v\nwant %+v", got, madeUp().Report)
		}
	}
	var sweep search.SweepReport
	if decode(Sweep(swept(t, "policy.target=10ms,20ms,80ms", "policy.ttl=100ms"), "", ""), &sweep); sweep.SchemaVersion != 2 || sweep.Finished != 2 || sweep.Invalid != 1 || len(sweep.Points) != 3 ||
		sweep.Points[1].Differences["calls_per_s"].Mean >= 0 || !slices.Equal(sweep.Objectives, search.DefaultObjectives()) {
		t.Errorf("%+v", sweep)
	}
	var plan search.Plan
	if decode(Plan(planned(t), "", ""), &plan); plan.SchemaVersion != 2 || plan.Verdict != search.Found || plan.Chosen.Policy.Target != "120ms" || plan.Chosen.Figures.CallsPerS.Mean < 166 {
		t.Errorf("%+v", plan)
	}
}

func TestTheKeysOfAPlan(t *testing.T) {
	keys := func(p search.Plan) (names []string) {
		var got map[string]json.RawMessage
		if err := json.Unmarshal([]byte(written(t, Plan(p, "", ""), FormatJSON)), &got); err != nil {
			t.Fatal(err)
		}
		for name := range got {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	always := []string{"confidence", "confirm_seed", "duration_s", "machine", "phases", "reps", "scenario", "scenario_hash",
		"schema_version", "seed", "targets", "trade_offs", "verdict"}
	for _, c := range []struct {
		plan search.Plan
		more []string
	}{{planned(t), []string{"chosen", "code", "given", "stress"}}, {missed(t), []string{"miss"}}} {
		want := slices.Sorted(slices.Values(append(c.more, always...)))
		if got := keys(c.plan); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// table reads a CSV, all of whose rows are as long as the first. cell finds one by its column.
func table(t *testing.T, d Document) (rows [][]string, cell func(row int, name string) string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(written(t, d, FormatCSV))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows, func(row int, name string) string { return rows[row][slices.Index(rows[0], name)] }
}

func TestCSVHasALinePerFigureAlgorithmPointOrPolicy(t *testing.T) {
	// Given names that CSV has to quote,
	r := madeUp()
	r.Report.Rivals[0].Name = "a \"b\", c\nd"
	if text := written(t, Run(r), FormatCSV); strings.Count(text, "\n") != strings.Count(text, "\r\n")+strings.Count(text, "c\nd") {
		t.Errorf("lines do not end as RFC 4180 has it: %q", text)
	}
	// then a run has a line per figure, of the fleet and of each rival, and how many replications
	// there are;
	run, _ := table(t, Run(r))
	if want := 1 + len(r.Report.Figures.All()) + len(r.Report.Rivals)*len(r.Report.Rivals[0].All()) + 2; len(run) != want {
		t.Errorf("%d lines, want %d", len(run), want)
	}
	if want := []string{"false_reject_ratio", "0.001704", "0.001494", "0.001914", "0.00219", "4"}; !slices.Equal(run[6], want) {
		t.Errorf("%q, want %q", run[6], want)
	}
	if got := run[len(r.Report.Figures.All())+1][0]; got != "rival."+r.Report.Rivals[0].Name+".admitted" {
		t.Errorf("the first figure of a rival is %s", got)
	}
	if got := run[len(run)-1]; got[0] != "reps_asked" || got[1] != "10" {
		t.Errorf("%q", got)
	}
	// a comparison a line per algorithm;
	if compare, _ := table(t, Comparison(r)); len(compare) != 5 || compare[1][0] != Own || compare[2][0] != r.Report.Rivals[0].Name {
		t.Errorf("%q", compare)
	}
	// a sweep a line per point, valid or not, the base first;
	rows, cell := table(t, Sweep(swept(t, "policy.target=10ms,80ms", "policy.ttl=100ms"), "", ""))
	if len(rows) != 3 || cell(1, "policy.target") != "10ms" || cell(1, "base") != "true" || cell(1, "front") != "true" || cell(1, "invalid") != "" ||
		cell(1, "calls_per_s.diff") != "0" || cell(1, "calls_per_s.diff_low") != "0" {
		t.Errorf("%q", rows)
	}
	if cell(2, "policy.ttl") != "100ms" || !strings.Contains(cell(2, "invalid"), "TTL") || cell(2, "calls_per_s.mean") != "" {
		t.Errorf("%q", rows[2])
	}
	// and a plan a line per policy.
	for _, c := range []struct {
		plan search.Plan
		want []string
	}{{planned(t), []string{"chosen", "given", "trade_off"}}, {missed(t), []string{"closest", "trade_off"}}} {
		rows, cell := table(t, Plan(c.plan, "", ""))
		var what []string
		for i, row := range rows[1:] {
			if !slices.Contains(what, row[0]) {
				what = append(what, row[0])
			}
			if calls := cell(i+1, "calls_per_s.mean"); calls == "" || calls == "0" {
				t.Errorf("%q", row)
			}
		}
		if !slices.Equal(what, c.want) {
			t.Errorf("%q, want %q", what, c.want)
		}
	}
}

func TestATableIsAlignedByCharacters(t *testing.T) {
	table := Table{Columns: []string{"name", ">±", "end"}}
	table.Add("é", "1 ± 2", "x")
	table.Add("longer", "10")
	table.Add("", "5", "y", "dropped")
	want := `
name        ±  end
------  -----  ---
é       1 ± 2  x
longer     10
            5  y
`
	if got := "\n" + table.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestALineIsNoLongerThanATerminal(t *testing.T) {
	word := strings.Repeat("é", 39)
	for text, want := range map[string]string{
		"":                                      "",
		"a b\nc":                                "a b\nc",
		word + " " + word + " " + word:          word + " " + word + " " + word,
		"  " + word + " " + word + " x " + word: "  " + word + " " + word + " x\n  " + word,
		word + " " + word + " x " + word:        word + " " + word + " x\n" + word,
		strings.Repeat("x", 130) + " more":      strings.Repeat("x", 130) + "\nmore",
	} {
		if got := Wrap(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAnUnknownFormatIsAnError(t *testing.T) {
	if Run(madeUp()).Write(&bytes.Buffer{}, "xml") == nil {
		t.Error("xml was written")
	}
}
