package view

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	html "html/template"
)

// Chart is lines over numbers or over names, as charts.js draws it.
type Chart struct {
	Title string `json:"title"` // the question that the chart answers
	Note  string `json:"-"`     // stands below it
	X     Axis   `json:"x"`
	Y     Axis   `json:"y"`
	Lines []Line `json:"lines"`
}

// Axis is an axis of a Chart.
type Axis struct {
	Label    string   `json:"label,omitempty"`
	Unit     string   `json:"unit,omitempty"`
	Names    []string `json:"names,omitempty"` // nil where the axis has numbers
	At       Points   `json:"at,omitempty"`    // the places of Names
	FromZero bool     `json:"fromZero,omitempty"`
}

// Line is one line of a Chart. A point that is not finite is a gap.
type Line struct {
	Name   string `json:"name"`
	X      Points `json:"x"`
	Y      Points `json:"y"` // as long as X
	Low    Points `json:"low,omitempty"`
	High   Points `json:"high,omitempty"` // the ends of a band around the line, as long as it; nil for none
	Series int    `json:"series"`         // its colour, from 0; Grey for what others are compared with
	Mark   Mark   `json:"mark,omitempty"`
}

// Points are numbers. Those that are not finite are null in JSON.
type Points []float64

// MarshalJSON writes an array.
func (p Points) MarshalJSON() ([]byte, error) {
	all := make([]*float64, len(p))
	for i := range p {
		if finite(p[i]) {
			all[i] = &p[i]
		}
	}
	return json.Marshal(all)
}

// add appends a point.
func (l *Line) add(x, y float64) { l.X, l.Y = append(l.X, x), append(l.Y, y) }

// Grey is the Series of a line that others are compared with.
const Grey = -1

// Mark is how a line is drawn.
type Mark string

// The marks.
const (
	Dotted Mark = "dotted" // solid, with a dot at each point
	Dashed Mark = "dashed"
)

// JSON is the description that charts.js draws.
func (c Chart) JSON() (string, error) {
	text, err := json.Marshal(c)
	return string(text), err
}

var (
	//go:embed page.css
	ownStyle string
	//go:embed uplot/uPlot.min.css
	libraryStyle string
	//go:embed uplot/uPlot.iife.min.js
	library string
	//go:embed charts.js
	ownScript string

	pageStyle  = html.CSS(libraryStyle + "\n" + ownStyle)
	pageScript = html.JS(bytes.Map(printable, []byte(library+ownScript)))
	// pagePolicy lets a browser run and apply these two, and load nothing.
	pagePolicy = "default-src 'none'; script-src " + digest(string(pageScript)) + "; style-src " +
		digest(string(pageStyle))
)

// Style returns the style of pages with charts.
func Style() string { return string(pageStyle) }

// Script returns the script that draws charts: it defines drawChart.
func Script() string { return string(pageScript) }

// digest names an inline script or style in a policy.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// flatPart is the part of its largest value by which a line may change and still be flat. A line is flat
// too if it stays within its widest band.
const flatPart = 1.0 / 50

// throughout says between which numbers a flat line or map stays, with the digits that tell them apart, three
// to five.
func throughout(low, high float64) string {
	digits := max(0, 2-exponent(high), min(1-exponent(high-low), 4-exponent(high)))
	from, to := decimal(low, 0, digits), decimal(high, 0, digits)
	if from == to {
		return to + " at every point."
	}
	return from + " to " + to + " at every point, no difference that counts."
}
