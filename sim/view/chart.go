package view

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is lines or points over numbers or over names.
type Chart struct {
	Title, Note string // the question that the chart answers, above it, and what stands below
	XLabel      string
	Lines       []Line
	Names       []string // of x = 0, 1, 2, ...; nil where x is a number
	FromZero    bool     // the vertical axis starts at 0
}

// draw adds a chart to the section. A chart whose lines are flat shows nothing: a sentence that answers its
// question stands in its place.
func (s *Section) draw(c Chart) {
	low, high, noise := math.Inf(1), math.Inf(-1), 0.0
	for _, line := range c.Lines {
		for i, y := range line.Y {
			if line.Series == Grey || !finite(y) {
				continue
			}
			low, high = min(low, y), max(high, y)
			if line.High != nil && finite(line.High[i]-line.Low[i]) {
				noise = max(noise, line.High[i]-line.Low[i])
			}
		}
	}
	if high-low > max(noise, flatPart*max(math.Abs(low), math.Abs(high))) {
		s.Charts = append(s.Charts, c)
	} else if low <= high {
		s.Text = append(s.Text, c.Title+" "+throughout(low, high))
	}
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

// Line is one line of a Chart. A point that is not finite is left out.
type Line struct {
	Name      string
	X, Y      []float64 // equally long
	Low, High []float64 // the ends of a band around the line, as long as it; nil for none
	Series    int       // its colour, from 0; Grey for what others are compared with
	Mark      Mark
}

// add appends a point.
func (l *Line) add(x, y float64) { l.X, l.Y = append(l.X, x), append(l.Y, y) }

// Grey is the Series of a line that others are compared with.
const Grey = -1

// Mark is how a line is drawn, and the class of its sign in the legend of a page.
type Mark string

// The marks.
const (
	Solid  Mark = "line"
	Dotted Mark = "line dotted" // solid, with a dot at each point
	Dashed Mark = "dashed"
)

// picture is a chart as a page shows it.
type picture struct {
	Wide, Narrow template.HTML // for a desk and for a telephone; a page shows one of them
	Legend       []legend
}

// The widths of the two drawings, in pixels where they are not scaled. The page's style knows from
// which width of a screen on there is room for the wide one.
const (
	wideChart   = 560
	narrowChart = 340
	height      = 240
)

// legend says what one colour and mark mean.
type legend struct {
	Name  string
	Mark  Mark
	Color template.CSS
}

// The colours of all charts. Colour-blind readers can tell those of series apart (Okabe and Ito, 2008).
var (
	muted  = color.NRGBA{0x6a, 0x73, 0x7d, 255}
	faint  = color.NRGBA{0xdf, 0xe3, 0xe8, 255}
	series = []color.NRGBA{
		{0x00, 0x72, 0xb2, 255}, {0xd5, 0x5e, 0x00, 255}, {0x00, 0x92, 0x6a, 255},
		{0xb8, 0x60, 0x8f, 255}, {0xb9, 0x85, 0x00, 255}, {0x4a, 0x9f, 0xd0, 255},
	}
)

func css(c color.NRGBA) template.CSS {
	return template.CSS(fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B))
}

// picture draws the chart as elements of a page, which scales them to its column.
func (c Chart) picture() (pic picture, err error) {
	for _, line := range c.Lines {
		if len(c.Lines) > 1 { // else the title says what it is
			pic.Legend = append(pic.Legend, legend{line.Name, cmp.Or(line.Mark, Solid), css(line.shade())})
		}
	}
	pic.Wide, err = c.drawn(wideChart)
	if err == nil {
		pic.Narrow, err = c.drawn(narrowChart)
	}
	if err != nil {
		err = fmt.Errorf("view: %w", err)
	}
	return pic, err
}

// drawn is the chart in a width.
func (c Chart) drawn(width float64) (template.HTML, error) {
	p := c.axes(width)
	empty := true
	for _, line := range c.Lines {
		parts, err := line.plotters(line.shade())
		if err != nil {
			return "", err
		}
		p.Add(parts...)
		empty = empty && len(parts) == 0
	}
	if empty {
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	}
	if c.FromZero {
		if p.Y.Min = min(p.Y.Min, 0); p.Y.Max <= p.Y.Min {
			p.Y.Max = p.Y.Min + 1
		}
	}
	widen(&p.X)
	widen(&p.Y)
	canvas := vgsvg.New(vg.Length(width), vg.Length(height))
	left := 2.0
	if names := p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max); c.Names != nil && len(names) > 0 {
		left = max(left, textWidth(names[0].Label)/2-yAxisLeast) // half of it stands left of its point
	}
	p.Draw(draw.Crop(draw.New(canvas), vg.Length(left), -8, 2, -8))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	return template.HTML(inAnyFont(b.String()[strings.Index(b.String(), "<svg"):])), nil
}

var textElement = regexp.MustCompile(`<text ([^>]*)>([^<]+)</text>`)

// inAnyFont has each text of a drawing be as wide as there is room for it: a screen without the
// font that the drawing was made with shows another one, whose letters may be wider.
func inAnyFont(svg string) string {
	return textElement.ReplaceAllStringFunc(svg, func(element string) string {
		part := textElement.FindStringSubmatch(element)
		return fmt.Sprintf(`<text %s textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`, part[1],
			textWidth(html.UnescapeString(part[2])), part[2])
	})
}

// shade is the colour of the line.
func (l Line) shade() color.NRGBA {
	if l.Series < 0 {
		return muted
	}
	return series[l.Series%len(series)]
}

// plotters draw a line: its band, then the line, then its dots. There are none if it has no point.
func (l Line) plotters(shade color.NRGBA) (parts []plot.Plotter, err error) {
	finitePoints := func(ys []float64) (points plotter.XYs) {
		for i, y := range ys {
			if finite(y) {
				points = append(points, plotter.XY{X: l.X[i], Y: y})
			}
		}
		return points
	}
	low := finitePoints(l.Low)
	slices.Reverse(low)
	if band := append(finitePoints(l.High), low...); len(band) > 2 {
		polygon, err := plotter.NewPolygon(band)
		if err != nil {
			return nil, err
		}
		polygon.Color, polygon.LineStyle.Width = color.NRGBA{shade.R, shade.G, shade.B, 0x2e}, 0
		parts = append(parts, polygon)
	}
	points := finitePoints(l.Y)
	if len(points) == 0 {
		return parts, nil
	}
	path, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, err
	}
	path.LineStyle = draw.LineStyle{Color: shade, Width: 1.75}
	if l.Mark == Dashed {
		path.Dashes = []vg.Length{5, 3}
	}
	parts = append(parts, path)
	dots.GlyphStyle = draw.GlyphStyle{Color: shade, Radius: 2.5, Shape: draw.CircleGlyph{}}
	if l.Mark == Dotted || len(points) == 1 {
		parts = append(parts, dots)
	}
	return parts, nil
}
