package view

import (
	"fmt"
	"html"
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

// points draws over a chart the titles of points, where a pointer can rest on them, and the labels, where
// they are over no point that has one and over no other label.
func (c Chart) points(p *plot.Plot, paper draw.Canvas, titled bool) string {
	area := p.DataCanvas(paper)
	toX, toY := p.Transforms(&area)
	at := func(l Line, i int) (x, y float64) { return float64(toX(l.X[i])), height - float64(toY(l.Y[i])) }
	all := box{float64(area.Min.X) - 7, height - float64(area.Max.Y) - 6, float64(paper.Max.X) + 6,
		height - float64(area.Min.Y)}
	var taken []box
	var b strings.Builder
	for _, l := range c.Lines {
		for i := range l.Labels {
			x, y := at(l, i)
			taken = append(taken, box{x - 4, y - 4, x + 4, y + 4})
		}
		for i := range l.Titles {
			if x, y := at(l, i); titled && finite(l.Y[i]) {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="none" `+
					`pointer-events="all"><title>%s</title></circle>`+"\n", x, y, html.EscapeString(l.Titles[i]))
			}
		}
	}
	for _, l := range slices.Backward(c.Lines) { // what is drawn last stands out, and is labelled first
		for i, label := range l.Labels {
			x, y := at(l, i)
			if place, ok := placed(x, y, textWidth(label), all, taken); ok && label != "" && finite(l.Y[i]) {
				taken = append(taken, place)
				fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" font-size="%dpx" fill="%s" stroke="#ffffff" stroke-width="3" `+
					`paint-order="stroke">%s</text>`+
					"\n", place.left, place.bottom-3, textSize, css(l.shade()), html.EscapeString(label))
			}
		}
	}
	return b.String()
}

// placed is where a text of a width has room beside a point, or above or below it, within all and
// free of what is taken.
func placed(x, y, width float64, all box, taken []box) (box, bool) {
	const away, half, tall = 6, (textSize + 2) / 2, textSize + 2
	for _, corner := range [][2]float64{
		{x + away, y - half}, {x - away - width, y - half}, {x - width/2, y - tall - away}, {x - width/2, y + away},
		{x - away, y - tall - away}, {x + away - width, y - tall - away},
	} {
		place := box{corner[0], corner[1], corner[0] + width, corner[1] + tall}
		if place.within(all) && !slices.ContainsFunc(taken, place.meets) {
			return place, true
		}
	}
	return box{}, false
}
