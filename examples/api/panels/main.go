// Command panels runs every query of a Grafana dashboard against a Prometheus, fails where a panel
// would show nothing, and draws the panels as one HTML page, as a picture for who has no Grafana.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "panels:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("panels", flag.ContinueOnError)
	file := flags.String("dashboard", "examples/api/grafana/dashboards/yuzhi.json", "the dashboard's JSON")
	base := flags.String("prometheus", "http://127.0.0.1:9090", "the server to ask")
	window := flags.Duration("window", time.Minute, "how far back the panels look")
	step := flags.Duration("step", time.Second, "between two points of a line")
	scrape := flags.Duration("scrape", time.Second, "the server's scrape interval, for $__rate_interval")
	out := flags.String("html", "", "write the panels to this file")
	fired := flags.String("fired", "", "alerts that must have fired in the window, with commas between")
	quiet := flags.String("quiet", "", "alerts that must not have fired")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	d, err := load(*file)
	if err != nil {
		return err
	}
	server := prometheus{base: strings.TrimSuffix(*base, "/")}
	now := time.Now().Truncate(*step)
	s := span{From: now.Add(-*window), To: now, Step: *step}

	panels, empty, err := ask(ctx, server, d, s, *scrape)
	if err != nil {
		return err
	}
	var alerts []series
	for _, a := range d.Annotations.List {
		if a.Expr != "" {
			found, err := server.over(ctx, a.Expr, s)
			if err != nil {
				return err
			}
			alerts = append(alerts, found...)
		}
	}
	if *out != "" {
		if err := page(*out, d, panels, alerts, s); err != nil {
			return err
		}
	}
	all, err := server.over(ctx, `max by (alertname) (ALERTS{alertstate="firing"})`, s)
	if err != nil {
		return err
	}
	complaints := append(empty, judge(all, list(*fired), list(*quiet))...)
	if len(complaints) > 0 {
		return fmt.Errorf("%d complaints:\n  %s", len(complaints), strings.Join(complaints, "\n  "))
	}
	return nil
}

// ask runs the queries of all panels, and says which of them returned nothing.
func ask(ctx context.Context, server prometheus, d *dashboard, s span, scrape time.Duration) (
	panels []drawn, empty []string, err error) {
	expand := d.expansion(s.Step, scrape, s.To.Sub(s.From))
	queries := 0
	for _, p := range d.Panels {
		one := drawn{panel: p}
		if len(p.Targets) == 0 && p.Type != "row" {
			empty = append(empty, fmt.Sprintf("panel %q has no query", p.Title))
		}
		for _, t := range p.Targets {
			queries++
			found, err := server.over(ctx, expand.Replace(t.Expr), s)
			if err != nil {
				return nil, nil, fmt.Errorf("panel %q, query %s: %w", p.Title, t.RefID, err)
			}
			if len(found) == 0 {
				empty = append(empty, fmt.Sprintf("panel %q, query %s shows nothing: %s", p.Title, t.RefID,
					expand.Replace(t.Expr)))
			}
			for _, line := range found {
				one.lines = append(one.lines, line.named(t))
			}
		}
		panels = append(panels, one)
	}
	fmt.Printf("%d panels, %d queries, %d without data\n", len(d.Panels), queries, len(empty))
	return panels, empty, nil
}

// judge says which alerts should have fired and did not, or the other way round.
func judge(alerts []series, fired, quiet []string) (complaints []string) {
	var names []string
	for _, a := range alerts {
		names = append(names, a.Labels["alertname"])
	}
	for _, name := range fired {
		if !slices.Contains(names, name) {
			complaints = append(complaints, fmt.Sprintf("alert %s did not fire; %v did", name, names))
		}
	}
	for _, name := range quiet {
		if slices.Contains(names, name) {
			complaints = append(complaints, fmt.Sprintf("alert %s fired", name))
		}
	}
	fmt.Println("alerts that fired:", strings.Join(names, ", "))
	return complaints
}

func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}
