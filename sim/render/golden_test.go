package render

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim"
)

// go test ./sim/render -update writes what the reports look like now.
var update = flag.Bool("update", false, "write the golden files")

// golden compares what was written with a file.
func golden(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var got bytes.Buffer
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s is now\n%s\nand was\n%s\n(go test ./sim/render -update, if that is meant)", path, got.Bytes(), want)
	}
}

func TestReportsLookAsTheyDid(t *testing.T) {
	for _, format := range []string{FormatTable, FormatCSV, FormatJSON} {
		name := map[string]string{FormatTable: "txt", FormatCSV: "csv", FormatJSON: "json"}[format]
		golden(t, "run."+name, func(w io.Writer) error { return Run(w, format, madeUp()) })
		golden(t, "compare."+name, func(w io.Writer) error { return Comparison(w, format, madeUp()) })
	}
}

func written(t *testing.T, write func(io.Writer, string, Result) error, format string, r Result) string {
	t.Helper()
	var b strings.Builder
	if err := write(&b, format, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestJSONIsTheReportItself(t *testing.T) {
	for _, write := range []func(io.Writer, string, Result) error{Run, Comparison} {
		var got sim.Report
		d := json.NewDecoder(strings.NewReader(written(t, write, FormatJSON, madeUp())))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if want := madeUp().Report; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
}

func TestCSVHasALinePerFigureOrAlgorithm(t *testing.T) {
	// Given names that CSV has to quote,
	r := madeUp()
	r.Report.Rivals[0].Name = "a \"b\", c\nd"
	read := func(text string) [][]string {
		if strings.Count(text, "\n") != strings.Count(text, "\r\n")+strings.Count(text, "c\nd") {
			t.Errorf("lines do not end as RFC 4180 has it: %q", text)
		}
		rows, err := csv.NewReader(strings.NewReader(text)).ReadAll() // all rows as long as the first
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	// when a run and a comparison are written,
	run, compare := read(written(t, Run, FormatCSV, r)), read(written(t, Comparison, FormatCSV, r))
	// then there is a line per figure, of the fleet and of each rival, and how many replications there are,
	if want := 1 + len(r.Report.Figures.All()) + len(r.Report.Rivals)*len(r.Report.Rivals[0].All()) + 2; len(run) != want {
		t.Errorf("%d lines, want %d", len(run), want)
	}
	if want := []string{"false_reject_ratio", "0.001704", "0.001494", "0.001914", "0.00219", "4"}; !reflect.DeepEqual(run[6], want) {
		t.Errorf("%q, want %q", run[6], want)
	}
	if got := run[len(r.Report.Figures.All())+1][0]; got != "rival."+r.Report.Rivals[0].Name+".admitted" {
		t.Errorf("the first figure of a rival is %s", got)
	}
	if got := run[len(run)-1]; got[0] != "reps_asked" || got[1] != "10" {
		t.Errorf("%q", got)
	}
	// and a line per algorithm.
	if len(compare) != 5 || compare[1][0] != Own || compare[2][0] != r.Report.Rivals[0].Name {
		t.Errorf("%q", compare)
	}
}

func TestATableIsAlignedByCharacters(t *testing.T) {
	table := Table{Columns: []Column{Left("name"), Right("±"), Left("end")}}
	table.Add("é", "1 ± 2", "x")
	table.Add("longer", "10")
	table.Add("", "5", "y", "dropped")
	var b strings.Builder
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := `
name        ±  end
------  -----  ---
é       1 ± 2  x
longer     10
            5  y
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestAnUnknownFormatIsAnError(t *testing.T) {
	if Run(io.Discard, "xml", madeUp()) == nil || Comparison(io.Discard, "xml", madeUp()) == nil {
		t.Error("xml was written")
	}
}
