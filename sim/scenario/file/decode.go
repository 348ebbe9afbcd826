package file

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

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

// validate adds the violations that Scenario.Validate finds. validate skips fields that could not be read,
// because they have their default instead of the value in the file.
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
// that draws zeros. keepZeros lists all explicit zeros in s.Zeros.
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
	s.Zeros = slices.Sorted(maps.Keys(d.Zeros))
	for _, path := range s.Zeros {
		if means := policyDefaults[path]; means != "" {
			d.Bad(path, d.Zeros[path], meansDefault, "0", means)
		}
	}
}

// forgetZeros removes the explicit zeros at and below path, because an assignment replaces the field at path.
func (d decoder) forgetZeros(path string) {
	maps.DeleteFunc(d.Zeros, func(zero string, _ yamlfile.Place) bool {
		below, ok := strings.CutPrefix(zero, path)
		return ok && (below == "" || strings.ContainsAny(below[:1], ".["))
	})
}

// policyDefaults describes the defaults of lease.Policy that depend on other fields.
var policyDefaults = map[string]string{
	"policy.target": "100ms, or less where the burst is small", "policy.ttl": "4 targets, or 2 call timeouts",
	"policy.min_batch": "1", "policy.weight": "1",
	"policy.calls_per_second": "3125, and fewer where the burst allows it", "policy.max_overshoot": "10",
}
