// Package render shows a simulation to a person or to a program: as an aligned table, as JSON, as CSV, or as one
// self-contained HTML page with charts. The pieces that these are made of, Table, Page, the charts, WriteJSON, WriteCSV and
// the writing of numbers, are there for other reports too. Equal reports give equal bytes. Everything here may be used by
// any goroutine, as long as nobody changes the values that it was given.
package render

import (
	"fmt"
	"io"

	"github.com/yuzhi-go/yuzhi/sim"
)

// The formats of a report.
const (
	FormatTable = "table"
	FormatJSON  = "json"
	FormatCSV   = "csv"
	FormatHTML  = "html"
)

// Formats are all formats.
var Formats = []string{FormatTable, FormatJSON, FormatCSV, FormatHTML}

// Result is a report with what a reader needs beside it.
type Result struct {
	Scenario sim.Scenario // that was run
	Text     string       // of the scenario's file
	Report   sim.Report
	Command  string // the command line that repeats it
	Rules    []Rule
	// Describe is a line about an algorithm; nil where there is none.
	Describe func(algorithm string) string
}

// Rule is a condition that was put to the report. Failure says what is wrong; "" if it holds.
type Rule struct{ Text, Failure string }

// Run writes the report of a run. JSON is the report itself; CSV has a line per figure.
func Run(w io.Writer, format string, r Result) error {
	r.Scenario = r.Scenario.Defaults()
	switch format {
	case FormatTable:
		return r.table(w)
	case FormatJSON:
		return WriteJSON(w, r.Report)
	case FormatCSV:
		return r.csv(w)
	case FormatHTML:
		return r.page().Write(w)
	}
	return fmt.Errorf("render: there is no format %q", format)
}

// Comparison writes the report of a run with rivals, side by side. JSON is the report itself; CSV has a line per
// algorithm.
func Comparison(w io.Writer, format string, r Result) error {
	r.Scenario = r.Scenario.Defaults()
	switch format {
	case FormatTable:
		return r.comparisonTable(w)
	case FormatJSON:
		return WriteJSON(w, r.Report)
	case FormatCSV:
		return r.comparisonCSV(w)
	case FormatHTML:
		return r.comparisonPage().Write(w)
	}
	return fmt.Errorf("render: there is no format %q", format)
}
