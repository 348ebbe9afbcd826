package view

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	text = strings.ReplaceAll(text, noBreak, " ")
	for _, want := range wants {
		if !strings.Contains(text, want) && !strings.Contains(strings.ReplaceAll(text, "\n", " "), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// reports are documents of every kind, as they are where all went well and where it did not.
func reports(t *testing.T) map[string]Document {
	interrupted := madeUp()
	interrupted.Report.Reps = 3
	sweep := func() search.SweepReport { return swept(t, "policy.target=10ms,20ms,80ms", "policy.ttl=200ms") }
	exceeded := sweep()
	exceeded.Points[1].Figures.BoundExceededBy.Worst = 3
	all := map[string]Document{
		"run": Run(madeUp()), "compare": Comparison(madeUp()), "run-interrupted": Run(interrupted),
		"sweep": Sweep(sweep(), "", ""), "sweep-exceeded": Sweep(exceeded, "", ""),
		"plan": Plan(planned(t), "", ""), "miss": Plan(missed(t), "", ""),
	}
	for name, d := range all {
		d.Machine = madeUp().Report.Machine
		all[name] = d
	}
	return all
}

func TestReportsLookAsTheyDid(t *testing.T) {
	all := reports(t)
	files := map[string]string{"run.json": written(t, all["run"], FormatJSON)}
	for name, d := range all {
		files[name+".txt"] = written(t, d, FormatTable)
	}
	for name, got := range files {
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
	word := strings.Repeat("é", 26)
	for text, want := range map[string]string{
		"":                                      "",
		"a b\nc":                                "a b\nc",
		word + " " + word + " " + word:          word + " " + word + " " + word,
		"  " + word + " " + word + " x " + word: "  " + word + " " + word + " x\n  " + word,
		word + " " + word + " x " + word:        word + " " + word + " x\n" + word,
		strings.Repeat("x", 130) + " more":      strings.Repeat("x", 130) + "\nmore",
	} {
		got := Wrap(text, 80)
		testkit.Check(t, got == want, "%q, want %q", got, want)
	}
}

func TestAnUnknownFormatIsAnError(t *testing.T) {
	testkit.Check(t, Run(madeUp()).Write(&bytes.Buffer{}, "xml") != nil, "xml was written")
}
