// Package file reads and writes scenarios as YAML files.
//
// Reading is strict: an unknown or repeated field, a missing unit, a wrong type or a value out of
// bounds is an error that names file, line, column and field, and all errors of a file are reported
// at once. Field names are those of package scenario in snake case. A missing field has its default.
// Quantities have units: 100ms, 1200/s, 0.5%, 50ppm, "1000/s burst 200". Only a duration of 0 may omit
// the unit. Template is an example with every field.
//
// A path names a field within a scenario: policy.target, groups[0].count, or groups.web.count by
// the group's name: see Set and Paths.
//
// All functions may be called from any goroutine, as long as no other works on the same Scenario.
package file

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
	"github.com/yuzhi-go/yuzhi/sim/scenario/trace"
)

// ErrInvalid is wrapped by every error about the text of a scenario file, an assignment or a path.
var ErrInvalid = errors.New("file: invalid scenario")

// Load reads the scenario in a file, on standard input for "-", or the built-in example NAME for
// "example:NAME".
func Load(path string) (scenario.Scenario, error) {
	if name, ok := strings.CutPrefix(path, "example:"); ok {
		if !slices.Contains(exampleOrder, name) {
			return scenario.Scenario{}, fmt.Errorf("%w: there is no example %q; there are %s",
				ErrInvalid, name, strings.Join(exampleOrder, ", "))
		}
		return Parse(path, exampleText(name))
	}
	in := os.Stdin
	if path != "-" {
		var err error
		if in, err = os.Open(path); err != nil {
			return scenario.Scenario{}, fmt.Errorf("file: %w", err)
		}
		defer in.Close()
	}
	text, err := io.ReadAll(io.LimitReader(in, yamlfile.TextMax+1)) // Parse refuses more
	if err != nil {
		return scenario.Scenario{}, fmt.Errorf("file: %w", err)
	}
	return Parse(path, text)
}

// Parse reads a scenario. name is the file's name, for errors; traces are read from that file's folder. The
// result is valid (Scenario.Validate) and has no defaults filled in. The error joins one error per fault, in
// the order of lines. Each wraps ErrInvalid, and a violation its error of Validate.
func Parse(name string, text []byte) (scenario.Scenario, error) {
	d := newDecoder(name)
	var s scenario.Scenario
	if d.Read("", text, reflect.ValueOf(&s).Elem()) {
		d.keepZeros(&s)
		d.loadTraces(&s)
		d.validate(s)
	}
	if err := d.err(); err != nil {
		return scenario.Scenario{}, err
	}
	return s, nil
}

// loadTraces reads the missing traces of the workloads of s, relative to the scenario's file. Copies of s do
// not change.
func (d decoder) loadTraces(s *scenario.Scenario) {
	d.loadTrace("workload", &s.Workload)
	s.Groups = slices.Clone(s.Groups)
	for i := range s.Groups {
		if own := s.Groups[i].Workload; own != nil {
			w := *own
			d.loadTrace(fmt.Sprintf("groups[%d].workload", i), &w)
			s.Groups[i].Workload = &w
		}
	}
}

func (d decoder) loadTrace(path string, w *scenario.Workload) {
	if w.File == "" || w.Trace != nil {
		return
	}
	name := w.File
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(d.File), name)
	}
	bad := func(field, format string, args ...any) { d.Bad(path+field, d.PlaceOf(path+field), format, args...) }
	columns, err := trace.ParseColumns(w.Columns)
	if err != nil {
		bad(".columns", "%v", err)
		return
	}
	t, err := trace.ReadFile(name, columns)
	if err != nil {
		bad(".file", "%v", err)
		return
	}
	sum := trace.Digest(t)
	if w.TraceSum != "" && w.TraceSum != sum {
		bad(".trace_sum", "is %q, but that of %s is %s: it is not the same trace any more", w.TraceSum, w.File, sum)
		return
	}
	w.Trace, w.TraceSum = t, sum
}

//go:embed examples/*.yaml
var exampleFiles embed.FS

//go:embed template.yaml
var template string

// exampleOrder lists the examples, the most usual fleets first.
var exampleOrder = []string{
	"steady-fleet", "flash-sale", "noisy-neighbours", "small-burst", "multi-limit-tenants", "redis-failover",
	"shadow-rollout", "window-boundary", "clock-skew", "priorities", "reservations", "real-processes",
	"fleet-of-10000",
}

// Example is a built-in scenario. Load takes its name after "example:".
type Example struct {
	Name, Description string
	Text              []byte // the commented file
}

// Examples returns the built-in scenarios, the most usual fleets first.
func Examples() (all []Example) {
	for _, name := range exampleOrder {
		s, err := Load("example:" + name)
		if err != nil {
			panic(fmt.Sprintf("file: an example is wrong: %v", err))
		}
		all = append(all, Example{name, s.Description, exampleText(name)})
	}
	return all
}

func exampleText(name string) []byte {
	text, _ := exampleFiles.ReadFile("examples/" + name + ".yaml") // which is there, and empty were it not
	return text
}

// Template is a commented scenario with every field. Fields that few users set are commented out with their
// defaults, in lines that begin with # and no space.
func Template() []byte { return []byte(template) }
