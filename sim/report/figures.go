package report

import (
	"reflect"
	"strings"
)

// Named is a figure with its JSON key.
type Named struct {
	Name string
	*Figure
}

// MoreIsBetter reports whether the figure with this JSON key is good where it is large. The others
// are good where they are small.
func MoreIsBetter(name string) bool {
	switch name {
	case "offered", "admitted", "central_admitted", "admitted_vs_central", "jain", "worst_share":
		return true
	}
	return false
}

// All lists the figures in the order of their declaration, with their JSON keys. They are pointers
// into f.
func (f *Figures) All() []Named { return figuresOf(f) }

// All lists the figures as Figures.All does.
func (r *RivalReport) All() []Named { return figuresOf(r) }

// figuresOf finds the fields of type Figure of a struct.
func figuresOf(p any) (all []Named) {
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		if f, ok := v.Field(i).Addr().Interface().(*Figure); ok {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			all = append(all, Named{name, f})
		}
	}
	return all
}
