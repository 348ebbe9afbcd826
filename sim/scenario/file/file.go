// Package file reads and writes scenarios as YAML files.
//
// An unknown or repeated field, a missing unit, a wrong type or a value out of bounds is an error with file,
// line, column and field. Field names are the names of package scenario in snake case. Quantities have units:
// 100ms, 1200/s, 0.5%, 50ppm, "1000/s burst 200". Template is an example with every field.
//
// A path names a field within a scenario: policy.target, groups[0].count, or, by the group's name,
// groups.web.count. See Set.
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

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
	"github.com/yuzhi-go/yuzhi/sim/scenario/trace"
)

// ErrInvalid is wrapped by every error about the text of a scenario file, an assignment or a path.
var ErrInvalid = errors.New("file: invalid scenario")

// Load reads a scenario: from a file, from standard input for the path "-", or from the built-in example NAME
// for the path "example:NAME".
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
	text, err := io.ReadAll(io.LimitReader(in, yamlfile.TextMax+1)) // Parse refuses a longer text
	if err != nil {
		return scenario.Scenario{}, fmt.Errorf("file: %w", err)
	}
	return Parse(path, text)
}

// Parse reads a scenario. name is the file's name for errors; Parse reads traces from the file's folder. The
// returned scenario is valid (Scenario.Validate) and has no defaults filled in. The error joins all errors of
// the file in the order of lines. Each of them wraps ErrInvalid, and maybe an error of Validate.
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

// decoder reads a file, or the assignments in a call of Set.
type decoder struct{ *yamlfile.Reader }

func newDecoder(file string) decoder { return decoder{format.NewReader(file, ErrInvalid)} }

// err joins all errors in the order of their places in the text.
func (d decoder) err() error {
	var all []error
	for _, p := range d.Problems() {
		all = append(all, p)
	}
	return errors.Join(all...)
}

// validate adds the violations that Scenario.Validate finds, except in fields that could not be read: these
// have no value of the file.
func (d decoder) validate(s scenario.Scenario) {
	err := s.Validate()
	if !d.Complete() {
		err = s.ValidateFields()
	}
	for _, v := range violation.All(err) {
		if !d.Unread(v.Path) {
			d.Add(v.Path, d.PlaceOf(v.Path), violation.Text(v), errors.Join(ErrInvalid, v))
		}
	}
}

// keepZeros refuses an explicit zero in a field whose zero value means a default: in a sweep, the row of 0
// would show the default's figures. keepZeros replaces an explicit zero of a distribution by a distribution
// that draws zeros.
func (d decoder) keepZeros(s *scenario.Scenario) {
	const meansDefault = "is %s, which means its default here: %s; leave it out, or give another value"
	root, filled := reflect.ValueOf(s).Elem(), reflect.ValueOf(s.Defaults())
	differences("", root, filled, func(means Difference, v reflect.Value) {
		if at, ok := d.Zeros[means.Path]; ok {
			if dist, ok := reflect.TypeAssert[*scenario.DurationDist](v.Addr()); ok {
				dist.Dist = scenario.Dist{Kind: scenario.DistUniform}
			} else {
				d.Bad(means.Path, at, meansDefault, means.First, means.Second)
			}
		}
		workload, isLoad := strings.CutSuffix(means.Path, "load")
		// Without a rate, the default load would apply.
		if at, ok := d.Zeros[workload+"rate"]; ok && isLoad {
			d.Bad(workload+"rate", at, meansDefault, "0/s", "a load of "+means.Second)
		}
	})
	for i := range s.Groups { // Defaults does not fill in round_trip
		if _, ok := d.Zeros[fmt.Sprintf("groups[%d].round_trip", i)]; ok {
			s.Groups[i].RoundTrip.Dist = scenario.Dist{Kind: scenario.DistUniform}
		}
	}
	for path, means := range policyDefaults {
		if at, ok := d.Zeros[path]; ok {
			d.Bad(path, at, meansDefault, "0", means)
		}
	}
}

// policyDefaults describes the defaults of lease.Policy that depend on other fields.
var policyDefaults = map[string]string{
	"policy.target": "100ms, or less where the burst is small", "policy.ttl": "4 targets, or 2 call timeouts",
	"policy.min_batch": "1", "policy.weight": "1",
	"policy.calls_per_second": "3125, and fewer where the burst allows it", "policy.max_overshoot": "10",
}

// loadTraces reads the missing traces of the workloads of s, from paths relative to the scenario's file, and
// changes no copy of s.
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
	t, err := trace.ReadFile(name)
	if err != nil {
		d.Bad(path+".file", d.PlaceOf(path+".file"), "%v", err)
		return
	}
	w.Trace = t
}

//go:embed examples/*.yaml
var exampleFiles embed.FS

//go:embed template.yaml
var template string

// exampleOrder lists the examples, with the most usual fleets first.
var exampleOrder = []string{
	"steady-fleet", "flash-sale", "noisy-neighbours", "small-burst", "multi-limit-tenants", "redis-failover",
	"shadow-rollout", "window-boundary", "clock-skew", "priorities", "reservations", "real-processes",
	"fleet-of-10000",
}

// Example is a built-in scenario. Load reads an example by its name after "example:".
type Example struct {
	Name, Description string
	Text              []byte // the file with its comments
}

// Examples returns the built-in scenarios, with the most usual fleets first.
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
	text, _ := exampleFiles.ReadFile("examples/" + name + ".yaml") // an embedded file; empty if missing
	return text
}

// Template returns a scenario with every field and its meaning. Most fields are commented out and show their
// defaults: the line begins with # without a space.
func Template() []byte { return []byte(template) }
