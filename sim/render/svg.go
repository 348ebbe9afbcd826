package render

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Width of every picture, in its own units; a page scales it to its column.
const width = 760

// Chart is a picture of numbers that a Page can show: Lines, Bars, Dots or HeatMap.
type Chart interface {
	// picture draws it. Equal charts give equal pictures.
	picture() (picture, error)
}

// picture is a chart as a page shows it.
type picture struct {
	SVG    template.HTML
	Legend []legend
	Scale  *scale
}

// legend says what one colour or shape means.
type legend struct {
	Name  string
	Shape string // line, dashed, dot or ring
	Color template.CSS
}

// scale is the legend of a heat map.
type scale struct {
	Low, High string
	Gradient  template.CSS
}

var (
	styleAttribute = regexp.MustCompile(`style="[^"]*"`)
	// fontProperties are what vgsvg says of a face; the page has its own.
	fontProperties = regexp.MustCompile(`font-(family|variant|weight|style):[^;"]*;?`)
)

// svgOf draws a plot, as an element to put into a page: in the page's colours and face, as wide as its column.
func svgOf(p *plot.Plot, height float64) (template.HTML, error) {
	canvas := vgsvg.New(width, vg.Length(height))
	p.Draw(draw.Crop(draw.New(canvas), 2, -6, 2, -8))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("render: %w", err)
	}
	_, body, ok := strings.Cut(b.String(), "<svg ")
	if ok {
		_, body, ok = strings.Cut(body, ">")
	}
	if !ok {
		return "", fmt.Errorf("render: a plot was drawn as %.40q, which is no SVG", b.String())
	}
	body = styleAttribute.ReplaceAllStringFunc(body, func(style string) string {
		return standIns.Replace(fontProperties.ReplaceAllString(style, ""))
	})
	// The name space keeps the element readable as XML by itself; no browser loads it.
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" viewBox="0 0 %d %g">`, width, height)
	return template.HTML(head + body), nil
}

// standIns puts the style's variables in the place of the shades' stand-ins.
var standIns = func() *strings.Replacer {
	var pairs []string
	for s := range series + seriesCount {
		pairs = append(pairs, hex(s.colour()), s.variable())
	}
	return strings.NewReplacer(pairs...)
}()

// hex is how vgsvg writes an opaque colour.
func hex(c color.Color) string {
	r, g, b, a := c.RGBA()
	f := 255.0 / float64(a)
	return fmt.Sprintf("#%02X%02X%02X", int(float64(r)*f), int(float64(g)*f), int(float64(b)*f))
}
