package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// palette are the colours of lines without one of their own.
var palette = []string{"#3274d9", "#e0752d", "#2f9e6e", "#8f5bd6", "#c9302c", "#0b9aa8", "#b8860b", "#d64f9b",
	"#5b6b7a", "#7a9a01"}

// named colours of Grafana, as they look in its light theme.
var colours = map[string]string{"green": "#2f9e6e", "red": "#c9302c", "orange": "#e0752d", "yellow": "#b8860b",
	"blue": "#3274d9", "purple": "#8f5bd6", "text": "#24292e", "transparent": "#24292e"}

func colourOf(name string) string {
	if c, ok := colours[strings.NewReplacer("dark-", "", "light-", "", "semi-", "").Replace(name)]; ok {
		return c
	}
	return name
}

// chart draws lines over time as an SVG picture.
type chart struct {
	panel  panel
	lines  []series
	alerts []series // when they fired
	span   span
	w, h   float64
}

const (
	leftMargin, rightMargin = 58, 10
	topMargin, bottomMargin = 6, 18
)

func (c chart) x(at time.Time) float64 {
	share := float64(at.Sub(c.span.From)) / float64(c.span.To.Sub(c.span.From))
	return leftMargin + share*(c.w-leftMargin-rightMargin)
}

func (c chart) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f">`, c.w, c.h, c.w, c.h)
	stacked := c.panel.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	lines := c.lines
	if stacked {
		lines = stack(lines)
	}
	low, high := c.bounds(lines)
	bottom := c.h - bottomMargin
	y := func(v float64) float64 {
		return bottom - (min(max(v, low), high)-low)/(high-low)*(bottom-topMargin)
	}

	b.WriteString(`<g opacity=".1">`) // as one, so that two alerts at a time are not twice as dark
	for _, s := range c.alerts {
		for _, run := range runs(s.Points, c.span.Step) {
			from, to := c.x(run[0].At), c.x(run[len(run)-1].At.Add(c.span.Step))
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%.1f" fill="#c9302c"/>`,
				from, topMargin, min(to, c.w-rightMargin)-from, bottom-topMargin)
		}
	}
	b.WriteString("</g>")
	for _, v := range ticks(low, high, max(3, int(bottom/30))) {
		fmt.Fprintf(&b, `<path class="grid" d="M%d %.1f H%.1f"/>`, leftMargin, y(v), c.w-rightMargin)
		fmt.Fprintf(&b, `<text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`, leftMargin-6, y(v)+4,
			format(v, c.panel.FieldConfig.Defaults.Unit, nil))
	}
	every := (c.span.To.Sub(c.span.From) / 5).Round(5 * time.Second)
	for at := c.span.From.Truncate(max(every, time.Second)).Add(every); at.Before(c.span.To); at = at.Add(max(every, time.Second)) {
		fmt.Fprintf(&b, `<path class="grid" d="M%.1f %d V%.1f"/>`, c.x(at), topMargin, bottom)
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, c.x(at), c.h-4,
			at.UTC().Format("15:04:05"))
	}
	if c.panel.FieldConfig.Defaults.Custom.ThresholdsStyle.Mode != "" {
		c.thresholds(&b, low, high, y)
	}
	for i := len(lines) - 1; i >= 0; i-- { // the first one is drawn last, on top
		c.line(&b, lines[i], palette[i%len(palette)], y, stacked)
	}
	b.WriteString("</svg>")
	return b.String()
}

// bounds are the least and the greatest value of the vertical axis.
func (c chart) bounds(lines []series) (low, high float64) {
	for _, s := range lines {
		for _, p := range s.Points {
			low, high = min(low, p.Value), max(high, p.Value)
		}
	}
	if high > low {
		high += (high - low) * 0.08
	} else {
		high = low + 1
	}
	if m := c.panel.FieldConfig.Defaults.Min; m != nil {
		low = *m
	}
	if m := c.panel.FieldConfig.Defaults.Max; m != nil {
		high = *m
	}
	return low, high
}

func (c chart) thresholds(b *strings.Builder, low, high float64, y func(float64) float64) {
	for _, t := range c.panel.FieldConfig.Defaults.Thresholds.Steps {
		if t.Value != nil && *t.Value > low && *t.Value < high {
			fmt.Fprintf(b, `<path d="M%d %.1f H%.1f" stroke="%s" stroke-dasharray="6 4"/>`, leftMargin,
				y(*t.Value), c.w-rightMargin, colourOf(t.Color))
		}
	}
}

func (c chart) line(b *strings.Builder, s series, colour string, y func(float64) float64, stacked bool) {
	custom := c.panel.FieldConfig.Defaults.Custom
	opacity := float64(custom.FillOpacity) / 100
	if stacked {
		opacity = max(opacity, 0.25)
	}
	for _, run := range runs(s.Points, c.span.Step) {
		var path strings.Builder
		for i, p := range run {
			switch {
			case i == 0:
				fmt.Fprintf(&path, "M%.1f %.1f", c.x(p.At), y(p.Value))
			case custom.LineInterpolate == "stepAfter":
				fmt.Fprintf(&path, "H%.1fV%.1f", c.x(p.At), y(p.Value))
			default:
				fmt.Fprintf(&path, "L%.1f %.1f", c.x(p.At), y(p.Value))
			}
		}
		if opacity > 0 {
			fmt.Fprintf(b, `<path d="%sV%.1fH%.1fZ" fill="%s" opacity="%.2f"/>`, path.String(), y(0),
				c.x(run[0].At), colour, opacity)
		}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.6"/>`, path.String(), colour)
	}
}

// runs cuts points where some are missing between two of them.
func runs(points []point, step time.Duration) [][]point {
	var all [][]point
	for i, p := range points {
		if i == 0 || p.At.Sub(points[i-1].At) > step*3/2 {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], p)
	}
	return all
}

// stack returns lines of which each is the sum of itself and those before it.
func stack(lines []series) []series {
	sums := map[time.Time]float64{}
	var all []series
	for _, s := range lines {
		sum := s
		sum.Points = nil
		for _, p := range s.Points {
			sums[p.At] += p.Value
			sum.Points = append(sum.Points, point{At: p.At, Value: sums[p.At]})
		}
		all = append(all, sum)
	}
	return all
}

// reduce makes one number of a line, as Grafana's calculation of that name does.
func reduce(s series, calculation string) float64 {
	last := s.Points[len(s.Points)-1].Value
	switch calculation {
	case "max":
		for _, p := range s.Points {
			last = math.Max(last, p.Value)
		}
	case "mean":
		last = 0
		for _, p := range s.Points {
			last += p.Value / float64(len(s.Points))
		}
	}
	return last
}
