// Package file reads and writes scenarios as YAML files.
//
// Reading is strict: an unknown or repeated field, a missing unit, a wrong type or a value out of
// bounds is an error that names file, line, column and field, and all errors of a file are reported
// at once. A field is called as in package scenario, in snake case; a field that is not there has
// its default. Quantities have units: 100ms, 1200/s, 0.5%, 50ppm, "1000/s burst 200"; only 0 may
// stand alone as a duration. Template is an example with every field.
//
// A path names a field within a scenario: policy.target, groups[0].count, or groups.web.count by
// the group's name: see Set and Paths.
//
// Files: file.go Load and Parse; decode.go, field.go and scalar.go how a field is read; encode.go
// how it is written; path.go paths; examples.go the examples; error.go where it went wrong.
//
// All functions may be called from any goroutine, as long as no other works on the same Scenario.
package file

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
	"github.com/yuzhi-go/yuzhi/sim/scenario/trace"
)

// examplePrefix marks the name of a built-in example where a file's name is expected.
const examplePrefix = "example:"

// textMax bounds a scenario file; one with every field is a hundredth of it.
const textMax = 1 << 20

// Load reads the scenario in a file, or the built-in example NAME for "example:NAME".
func Load(path string) (scenario.Scenario, error) {
	if name, ok := strings.CutPrefix(path, examplePrefix); ok {
		for _, e := range Examples() {
			if e.Name == name {
				return Parse(path, e.Text)
			}
		}
		return scenario.Scenario{}, fmt.Errorf("%w: there is no example %q; there are %s",
			ErrInvalid, name, strings.Join(exampleOrder, ", "))
	}
	f, err := os.Open(path)
	if err != nil {
		return scenario.Scenario{}, fmt.Errorf("file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, textMax+1))
	if err != nil {
		return scenario.Scenario{}, fmt.Errorf("file: %w", err)
	}
	return Parse(path, text)
}

// Parse reads a scenario. The name of its file is for errors, and the traces that the scenario
// replays are looked for in that file's folder. The result is valid (Scenario.Validate), but has no
// defaults filled in. The error joins *Error values in the order of their lines; each wraps
// ErrInvalid, and scenario.ErrInvalidScenario where Validate objects.
func Parse(name string, text []byte) (scenario.Scenario, error) {
	d := newDecoder(name)
	var s scenario.Scenario
	if root := d.document(text); root != nil {
		d.value("", root, reflect.ValueOf(&s).Elem())
		d.loadTraces(&s)
		d.validate(s)
	}
	if err := d.err(); err != nil {
		return scenario.Scenario{}, err
	}
	return s, nil
}

// loadTraces reads the traces that workloads of s name and that are not there yet, each beside the
// scenario's file. A digest in the scenario says which trace was meant; another one is an error.
func (d *decoder) loadTraces(s *scenario.Scenario) {
	load := func(path string, w *scenario.Workload) {
		if w == nil || w.File == "" || w.Trace != nil {
			return
		}
		name := w.File
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(d.file), name)
		}
		t, err := trace.ReadFile(name)
		if err != nil {
			d.bad(path+".file", d.position(path+".file"), "%v", err)
			return
		}
		sum := trace.Digest(t)
		if w.TraceSum != "" && w.TraceSum != sum {
			path += ".trace_sum"
			d.bad(path, d.position(path), "is %q, but that of %s is %s: it is not the same trace any more",
				w.TraceSum, w.File, sum)
			return
		}
		w.Trace, w.TraceSum = t, sum
	}
	load("workload", &s.Workload)
	for i := range s.Groups {
		load(fmt.Sprintf("groups[%d].workload", i), s.Groups[i].Workload)
	}
}
