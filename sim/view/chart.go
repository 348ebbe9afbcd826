package view

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
)

// Chart is a set of lines over an axis of numbers or of names. charts.js draws a Chart.
type Chart struct {
	Title string `json:"title"` // the question that the chart answers
	Note  string `json:"-"`     // text below the chart
	X     Axis   `json:"x"`
	Y     Axis   `json:"y"`
	Lines []Line `json:"lines"`
}

// Axis is an axis of a Chart.
type Axis struct {
	Label string   `json:"label,omitempty"`
	Unit  string   `json:"unit,omitempty"`
	Names []string `json:"names,omitempty"` // names of the points; nil for an axis of numbers
	At    Points   `json:"at,omitempty"`    // position of each name
}

// Line is one line of a Chart. A coordinate that is not finite makes a gap.
type Line struct {
	Name   string `json:"name"`
	X      Points `json:"x"`
	Y      Points `json:"y"` // has the same length as X
	Low    Points `json:"low,omitempty"`
	High   Points `json:"high,omitempty"` // Low and High bound a band around the line; nil for none
	Series int    `json:"series"`         // number of the colour, from 0, or Grey
	Mark   string `json:"mark,omitempty"`
}

// Points are coordinates. A coordinate that is not finite is null in JSON.
type Points []float64

// MarshalJSON writes the points as an array.
func (p Points) MarshalJSON() ([]byte, error) {
	all := make([]*float64, len(p))
	for i := range p {
		if finite(p[i]) {
			all[i] = &p[i]
		}
	}
	return json.Marshal(all)
}

func (l *Line) add(x, y float64) { l.X, l.Y = append(l.X, x), append(l.Y, y) }

// Grey is the Series of a line of reference, such as a limit.
const Grey = -1

// These constants are the values of Line.Mark.
const (
	Dotted = "dotted" // solid, with a dot at each point
	Dashed = "dashed"
	Thick  = "thick" // a span of the x axis
)

// JSON returns the description of c that charts.js draws.
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

	// Style is the style sheet of pages with charts.
	Style = libraryStyle + "\n" + ownStyle
	// Script defines drawChart, which draws charts.
	Script = string(bytes.Map(printable, []byte(library+ownScript)))
	// pagePolicy allows only Script and Style. A browser loads no file.
	pagePolicy = "default-src 'none'; script-src " + digest(Script) + "; style-src " + digest(Style)
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
