package view

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"
)

// box is a part of a drawing, whose y goes down.
type box struct{ left, top, right, bottom float64 }

func (b box) meets(o box) bool {
	return b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom
}

func (b box) within(o box) bool {
	return b.left >= o.left && b.right <= o.right && b.top >= o.top && b.bottom <= o.bottom
}

// points draws over a chart of that height: the labels of points, where they are not over a point or
// over another label, and where a pointer can rest on points their titles.
func (c Chart) points(p *plot.Plot, paper draw.Canvas, height float64, titled bool) string {
	area := p.DataCanvas(paper)
	toX, toY := p.Transforms(&area)
	at := func(l Line, i int) (x, y float64) { return float64(toX(l.X[i])), height - float64(toY(l.Y[i])) }
	all := box{float64(area.Min.X) - 7, height - float64(area.Max.Y) - 6, float64(paper.Max.X) + 6,
		height - float64(area.Min.Y)}
	labelled := slices.ContainsFunc(c.Lines, func(l Line) bool { return len(l.Labels) > 0 })
	var taken []box
	for _, l := range c.Lines {
		for i := range l.X {
			if !labelled {
				break
			}
			x, y := at(l, i)
			if finite(l.Y[i]) && (l.Mark == Dots || l.Mark == Dotted) {
				taken = append(taken, box{x - 4, y - 4, x + 4, y + 4})
			}
			if l.Mark != Dots && i+1 < len(l.X) && finite(l.Y[i]) && finite(l.Y[i+1]) {
				toX, toY := at(l, i+1)
				taken = append(taken, along(x, y, toX, toY)...)
			}
		}
	}
	var b strings.Builder
	for k := range c.Lines {
		l := c.Lines[len(c.Lines)-1-k] // what is drawn last stands out, and is labelled first
		for i := range l.Labels {
			if !finite(l.Y[i]) || l.Labels[i] == "" {
				continue
			}
			x, y := at(l, i)
			if place, ok := placed(x, y, textWidth(l.Labels[i]), l.Mark != Dots, all, taken); ok {
				taken = append(taken, place)
				fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" font-size="%dpx" fill="%s" stroke="#ffffff" stroke-width="3" `+
					`paint-order="stroke">%s</text>`+
					"\n", place.left, place.bottom-3, textSize, css(l.shade()), html.EscapeString(l.Labels[i]))
			}
		}
	}
	if !titled {
		return b.String()
	}
	for _, l := range c.Lines {
		radius := 7
		if len(l.X) > 50 {
			radius = 3
		}
		for i := range l.X {
			if finite(l.Y[i]) {
				x, y := at(l, i)
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="%d" fill="none" `+
					`pointer-events="all"><title>%s</title></circle>`+"\n", x, y, radius,
					html.EscapeString(c.title(l, i)))
			}
		}
	}
	return b.String()
}

// title describes a point.
func (c Chart) title(l Line, i int) string {
	if i < len(l.Titles) {
		return l.Titles[i]
	}
	at := Number(l.X[i])
	if n := int(l.X[i]); c.Names != nil && n < len(c.Names) {
		at = c.Names[n]
	}
	text := fmt.Sprintf("%s: %s at %s %s", l.Name, Number(l.Y[i]), c.XLabel, at)
	if i < len(l.Low) && i < len(l.High) && l.Low[i] < l.High[i] {
		text += fmt.Sprintf(" (%s to %s)", Number(l.Low[i]), Number(l.High[i]))
	}
	return text
}

// placed is where a text of a width has room beside a point, or above or below it, within all and
// free of what is taken. Beside a point of a line is the line.
func placed(x, y, width float64, ofLine bool, all box, taken []box) (box, bool) {
	const away, half, tall = 6, (textSize + 2) / 2, textSize + 2
	var corners [][2]float64
	for _, left := range []float64{x - width/2, x - away, x + away - width} {
		corners = append(corners, [2]float64{left, y - tall - away}, [2]float64{left, y + away})
	}
	if !ofLine {
		corners = slices.Insert(corners, 0, [2]float64{x + away, y - half}, [2]float64{x - away - width, y - half})
	}
	for _, corner := range corners {
		place := box{corner[0], corner[1], corner[0] + width, corner[1] + tall}
		if place.within(all) && !slices.ContainsFunc(taken, place.meets) {
			return place, true
		}
	}
	return box{}, false
}

// along are boxes on the way from one point to another.
func along(x, y, toX, toY float64) (way []box) {
	n := math.Ceil(max(math.Abs(toX-x), math.Abs(toY-y))/4) + 1
	for i := range int(n) {
		part := float64(i) / n
		atX, atY := x+part*(toX-x), y+part*(toY-y)
		way = append(way, box{atX - 1, atY - 1, atX + 1, atY + 1})
	}
	return way
}
