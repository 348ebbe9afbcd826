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

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// go test ./sim/view -update writes what the reports look like now.
var update = flag.Bool("update", false, "write the golden files")

// written is a document in a format.
func written(t *testing.T, d Document, format string) string {
	t.Helper()
	var b bytes.Buffer
	testkit.NoErr(t, d.Write(&b, format))
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
	} {
		path := filepath.Join("testdata", name)
		if *update {
			testkit.NoErr(t, os.WriteFile(path, []byte(got), 0o644))
		}
		want, err := os.ReadFile(path)
		testkit.NoErr(t, err)
		testkit.Check(t, got == string(want),
			"%s is now\n%s\nand was\n%s\n(go test ./sim/view -update, if that is meant)", path, got, want)
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
	if decode(Plan(planned(t), "", ""), &plan); plan.SchemaVersion != 3 || plan.Verdict != search.Found || plan.Chosen.Policy.Target != "110ms" || plan.Chosen.Figures.CallsPerS.Mean < 181 {
		t.Errorf("%+v", plan)
	}
}

func TestTheKeysOfAPlan(t *testing.T) {
	keys := func(p search.Plan) (names []string) {
		var got map[string]json.RawMessage
		testkit.NoErr(t, json.Unmarshal([]byte(written(t, Plan(p, "", ""), FormatJSON)), &got))
		for name := range got {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	always := []string{"confidence", "confirm_seed", "duration_s", "machine", "reps", "scenario", "scenario_hash",
		"schema_version", "seed", "targets", "trade_offs", "verdict"}
	for _, c := range []struct {
		plan search.Plan
		more []string
	}{{planned(t), []string{"chosen", "code", "given", "stress"}}, {missed(t), []string{"miss"}}} {
		want := slices.Sorted(slices.Values(append(c.more, always...)))
		got := keys(c.plan)
		testkit.Check(t, slices.Equal(got, want), "%q, want %q", got, want)
	}
}

func TestCSVHasALinePerFigureOfEverything(t *testing.T) {
	figures, ofRival := len(search.FigureNames()), len(search.RivalFigureNames())
	// Given names that CSV has to quote,
	r := madeUp()
	r.Report.Rivals[0].Name = "a \"b\", c\nd"
	all := figures + 3*ofRival
	for i, c := range []struct {
		d    Document
		want []string // what the lines are about
		n    int
	}{
		{Run(r), []string{Own, r.Report.Rivals[0].Name, "fixed_window", "local_batches:50"}, all},
		{Comparison(r), []string{Own, r.Report.Rivals[0].Name, "fixed_window", "local_batches:50"}, all},
		// a point that cannot run has no figures
		{Sweep(swept(t, "policy.target=10ms,80ms", "policy.ttl=100ms"), "", ""), []string{"policy.target=10ms policy.ttl=100ms"}, figures},
		{Plan(planned(t), "", ""), []string{"chosen: target 110ms, ttl 440ms", "given: target 20ms, ttl 200ms", "trade-off: target 500ms, ttl 2s"}, 0},
		{Plan(missed(t), "", ""), []string{"closest: target 160ms, ttl 640ms", "trade-off: target 500ms, ttl 2s"}, 0},
	} {
		// then every line is whole and ends as RFC 4180 has it,
		text := written(t, c.d, FormatCSV)
		rows, err := csv.NewReader(strings.NewReader(text)).ReadAll() // all rows as long as the first
		if err != nil || strings.Count(text, "\n") != strings.Count(text, "\r\n")+strings.Count(text, "c\nd") {
			t.Fatalf("%d: %v in %q", i, err, text)
		}
		// and there is one per figure.
		var what []string
		for _, row := range rows[1:] {
			if !slices.Contains(what, row[0]) {
				what = append(what, row[0])
			}
		}
		if c.n > 0 && len(rows) != 1+c.n || (len(rows)-1)%figures != 0 && i > 1 || !slices.Equal(what[:len(c.want)], c.want) {
			t.Errorf("%d: %d rows about %q, want %d about %q", i, len(rows), what, c.n, c.want)
		}
		if want := []string{Own, "false_reject_ratio", "0.001704", "0.001494", "0.001914", "0.00219", "4"}; i < 2 && !slices.Equal(rows[6], want) {
			t.Errorf("%q, want %q", rows[6], want)
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
	got := "\n" + table.String()
	testkit.Check(t, got == want, "got %s\nwant %s", got, want)
}

func TestALineIsNoLongerThanATerminal(t *testing.T) {
	word := strings.Repeat("é", 36)
	for text, want := range map[string]string{
		"":                                      "",
		"a b\nc":                                "a b\nc",
		word + " " + word + " " + word:          word + " " + word + " " + word,
		"  " + word + " " + word + " x " + word: "  " + word + " " + word + " x\n  " + word,
		word + " " + word + " x " + word:        word + " " + word + " x\n" + word,
		strings.Repeat("x", 130) + " more":      strings.Repeat("x", 130) + "\nmore",
	} {
		got := Wrap(text)
		testkit.Check(t, got == want, "%q, want %q", got, want)
	}
}

func TestAnUnknownFormatIsAnError(t *testing.T) {
	testkit.Check(t, Run(madeUp()).Write(&bytes.Buffer{}, "xml") != nil, "xml was written")
}
