package main

import (
	"fmt"
	"html"
	"html/template"
	"os"
	"time"
)

const (
	columns    = 24 // of Grafana's grid
	columnPx   = 62
	rowPx      = 34
	gapPx      = 8
	headingPx  = 26
	legendRow  = 17
	sparkShare = 0.34
)

// drawn is a panel with what its queries returned.
type drawn struct {
	panel panel
	lines []series
}

// page writes all panels as one HTML page without scripts, laid out as the dashboard says.
func page(file string, d *dashboard, panels []drawn, alerts []series, s span) error {
	type box struct {
		Style template.CSS
		Class string
		Title string
		Body  template.HTML
	}
	var boxes []box
	for _, p := range panels {
		g := p.panel.GridPos
		w := float64(g.W*columnPx - gapPx)
		h := float64(g.H*rowPx - gapPx)
		one := box{Class: p.panel.Type, Title: p.panel.Title,
			Style: template.CSS(fmt.Sprintf("left:%dpx;top:%dpx;width:%.0fpx;height:%.0fpx",
				g.X*columnPx, g.Y*rowPx, w, h))}
		switch p.panel.Type {
		case "stat":
			one.Body = template.HTML(stat(p, s, w, h))
		case "timeseries":
			body := h - headingPx - float64(legendRow*(len(p.lines)+1)) - 12
			c := chart{panel: p.panel, lines: p.lines, alerts: alerts, span: s, w: w - 12, h: body}
			one.Body = template.HTML(c.svg() + legend(p))
		}
		boxes = append(boxes, one)
	}
	last := panels[len(panels)-1].panel.GridPos
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	return layout.Execute(out, map[string]any{
		"Title": d.Title, "Boxes": boxes, "From": s.From.UTC().Format("2006-01-02 15:04:05"),
		"To": s.To.UTC().Format("15:04:05 UTC"), "Width": columns * columnPx, "Alerts": told(alerts, s.Step),
		"Height": (last.Y + last.H) * rowPx,
	})
}

// told says which alert fired when.
func told(alerts []series, step time.Duration) (all []string) {
	const clock = "15:04:05"
	for _, s := range alerts {
		for _, run := range runs(s.Points, step) {
			from, to := run[0].At.UTC(), run[len(run)-1].At.UTC()
			all = append(all, fmt.Sprintf("%s %s to %s", s.Labels["alertname"], from.Format(clock), to.Format(clock)))
		}
	}
	return all
}

// stat shows each line as one number, in the colour of its threshold, over its course.
func stat(p drawn, s span, w, h float64) string {
	calculation := "lastNotNull"
	if c := p.panel.Options.ReduceOptions.Calcs; len(c) > 0 {
		calculation = c[0]
	}
	defaults := p.panel.FieldConfig.Defaults
	text := ""
	for _, line := range p.lines {
		value := reduce(line, calculation)
		shown, colour := defaults.text(value)
		if shown == "" {
			shown, colour = format(value, defaults.Unit, defaults.Decimals), defaults.colour(value)
		}
		text += fmt.Sprintf(`<div class="number" style="color:%s">%s</div>`, colourOf(colour), html.EscapeString(shown))
	}
	low, high := chart{panel: panel{}}.bounds(p.lines)
	spark := ""
	for _, line := range p.lines {
		tall := (h - headingPx) * sparkShare
		path := fmt.Sprintf("M0 %.1f", tall)
		for _, at := range line.Points {
			x := float64(at.At.Sub(s.From)) / float64(s.To.Sub(s.From)) * w
			path += fmt.Sprintf("L%.1f %.1f", x, tall-(at.Value-low)/(high-low)*tall)
		}
		spark += fmt.Sprintf(`<svg class="spark" width="%.0f" height="%.0f"><path d="%sV%.1fZ" fill="%s" opacity=".2"/></svg>`,
			w, tall, path, tall, colourOf(defaults.colour(reduce(line, calculation))))
	}
	return text + spark
}

// legend is a row for each line with the calculations that the panel asks for.
func legend(p drawn) string {
	calculations := p.panel.Options.Legend.Calcs
	text := `<table class="legend"><tr><th></th>`
	for _, c := range calculations {
		if c == "lastNotNull" {
			c = "last"
		}
		text += "<th>" + c + "</th>"
	}
	text += "</tr>"
	defaults := p.panel.FieldConfig.Defaults
	for i, line := range p.lines {
		text += fmt.Sprintf(`<tr><td><i style="background:%s"></i>%s</td>`, palette[i%len(palette)],
			html.EscapeString(line.Name))
		for _, c := range calculations {
			text += "<td>" + format(reduce(line, c), defaults.Unit, nil) + "</td>"
		}
		text += "</tr>"
	}
	return text + "</table>"
}

var layout = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title><style>
* { box-sizing: border-box }
body { margin: 0; padding: 12px 14px; background: #f4f5f5; color: #24292e;
  font: 12px/1.35 "DejaVu Sans", "Liberation Sans", Arial, sans-serif }
h1 { font-size: 19px; margin: 0 0 4px } p { margin: 0 0 10px; color: #a02622 } h1 small { font-weight: normal; font-size: 12px; color: #57606a; margin-left: 12px }
#grid { position: relative; width: {{.Width}}px; height: {{.Height}}px }
section { position: absolute; background: #fff; border: 1px solid #d8dade; border-radius: 3px; overflow: hidden; padding: 0 6px }
section.row { background: none; border: none; padding: 4px 0 }
section.row h2 { font-size: 14px; font-weight: bold; border-bottom: 1px solid #d0d3d8 }
h2 { margin: 0; font-size: 12.5px; font-weight: 600; line-height: 25px; white-space: nowrap }
.number { font-size: 25px; font-weight: 600; text-align: center; line-height: 1.25 }
.spark { position: absolute; left: 0; bottom: 0 }
.grid { stroke: #e6e8eb } .tick { font-size: 10.5px; fill: #57606a } svg { display: block }
.legend { border-collapse: collapse; width: 100%; font-size: 11px; line-height: 16px }
.legend td, .legend th { padding: 0 6px 0 0; text-align: right; white-space: nowrap; font-weight: normal; height: 17px }
.legend th { color: #57606a } .legend td:first-child { text-align: left; width: 100% }
.legend i { display: inline-block; width: 14px; height: 3px; margin: 0 6px 3px 2px }
</style></head><body>
<h1>{{.Title}}<small>{{.From}} to {{.To}}. Drawn from a Prometheus by the panels command, not by Grafana.</small></h1>
<p>Red, while somebody would be paged: {{range $i, $a := .Alerts}}{{if $i}}; {{end}}{{$a}}{{else}}nobody was{{end}}.</p>
<div id="grid">{{range .Boxes}}<section class="{{.Class}}" style="{{.Style}}"><h2>{{.Title}}</h2>{{.Body}}</section>
{{end}}</div></body></html>
`))
