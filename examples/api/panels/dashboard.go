package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// dashboard is what this program understands of a Grafana dashboard's JSON. Unknown fields are left
// alone, as Grafana does; an unknown kind of panel is an error, as it could not be drawn.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Panels        []panel
	Templating    struct{ List []variable }
	Annotations   struct{ List []struct{ Expr string } }
}

// panel is one panel, or the heading of a row.
type panel struct {
	ID          int
	Type        string // row, stat or timeseries
	Title       string
	Description string
	GridPos     struct{ X, Y, W, H int } // Grafana's grid has 24 columns
	Datasource  struct{ UID string }
	Targets     []target
	Panels      []panel // of a row that is collapsed
	FieldConfig struct{ Defaults fieldDefaults }
	Options     struct {
		ReduceOptions struct{ Calcs []string }
		Legend        struct{ Calcs []string }
	}
}

type target struct {
	Expr         string
	LegendFormat string
	RefID        string
	Instant      bool
}

type fieldDefaults struct {
	Unit       string
	Decimals   *int
	Min, Max   *float64
	Thresholds struct{ Steps []threshold }
	Mappings   []mapping
	Custom     struct {
		FillOpacity     int
		LineInterpolate string
		Stacking        struct{ Mode string }
		ThresholdsStyle struct{ Mode string }
	}
}

// threshold is a colour and the least value that has it; the first one's Value is null.
type threshold struct {
	Color string
	Value *float64
}

// mapping gives some values a text and a colour.
type mapping struct {
	Type    string
	Options map[string]struct{ Text, Color string }
}

// variable is a template variable of the dashboard.
type variable struct {
	Name, Type string
	Query      json.RawMessage
	AllValue   string
}

var drawable = []string{"row", "stat", "timeseries"}

// load reads the dashboard and checks that this program can draw all of it.
func load(file string) (*dashboard, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	flat := make([]panel, 0, len(d.Panels))
	for _, p := range d.Panels {
		flat = append(flat, p)
		flat = append(flat, p.Panels...)
	}
	d.Panels = flat
	slices.SortStableFunc(d.Panels, func(a, b panel) int {
		return cmp.Or(a.GridPos.Y-b.GridPos.Y, a.GridPos.X-b.GridPos.X)
	})
	for _, p := range d.Panels {
		if !slices.Contains(drawable, p.Type) {
			return nil, fmt.Errorf("%s: panel %q is a %s; only %v can be drawn", file, p.Title, p.Type, drawable)
		}
	}
	return &d, nil
}

// expansion is what Grafana puts in place of the variables of a query, where the variables of the
// dashboard stand at "All".
func (d *dashboard) expansion(step, scrape, window time.Duration) *strings.Replacer {
	seconds := func(t time.Duration) string { return fmt.Sprintf("%ds", max(1, int(t.Round(time.Second).Seconds()))) }
	pairs := []string{
		// Grafana's definition: the step and one scrape, but never less than four scrapes.
		"$__rate_interval", seconds(max(step+scrape, 4*scrape)),
		"$__interval", seconds(step),
		"$__range", seconds(window),
	}
	for _, v := range d.Templating.List {
		if v.Type != "datasource" {
			all := cmp.Or(v.AllValue, ".*")
			pairs = append(pairs, "${"+v.Name+"}", all, "$"+v.Name, all)
		}
	}
	return strings.NewReplacer(pairs...)
}

// text returns the mapping's text and colour for a value, or nothing.
func (f fieldDefaults) text(value float64) (text, colour string) {
	for _, m := range f.Mappings {
		if o, ok := m.Options[fmt.Sprint(value)]; ok && m.Type == "value" {
			return o.Text, o.Color
		}
	}
	return "", ""
}

// colour is that of the highest threshold which value has reached.
func (f fieldDefaults) colour(value float64) string {
	found := ""
	for _, t := range f.Thresholds.Steps {
		if t.Value == nil || value >= *t.Value {
			found = t.Color
		}
	}
	return found
}
