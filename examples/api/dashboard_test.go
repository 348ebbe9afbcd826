package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestDashboardIsOneThatGrafanaTakes checks mistakes that Grafana would silently mend, or show
// wrongly. The script run tests its queries.
func TestDashboardIsOneThatGrafanaTakes(t *testing.T) {
	const columns = 24
	var d struct {
		Panels []struct {
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Datasource  struct{ UID string }
			Targets     []struct{ Expr string }
		}
	}
	testkit.NoErr(t, json.Unmarshal([]byte(read(t, "grafana/dashboards/yuzhi.json")), &d))
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		testkit.Check(t, p.GridPos.X+p.GridPos.W <= columns, "%q is wider than the grid", p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				testkit.Check(t, taken[at] == "", "%q lies on %q", p.Title, taken[at])
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		testkit.Check(t, p.Datasource.UID == "${datasource}", "%q asks the datasource %q", p.Title,
			p.Datasource.UID)
		for _, one := range p.Targets {
			testkit.Check(t, !strings.Contains(one.Expr, "rate(") || strings.Contains(one.Expr, "[$__rate_interval]"),
				"%q has a rate over a time of its own: %s", p.Title, one.Expr)
			testkit.Check(t, strings.Count(one.Expr, "{") == strings.Count(one.Expr, `instance=~"$instance"`),
				"%q does not follow the choice of a process: %s", p.Title, one.Expr)
		}
	}
}

// TestEveryAlertIsTested: for each alert there is a case in which it fires, and before it one in which
// it does not fire yet. The script run runs the cases.
func TestEveryAlertIsTested(t *testing.T) {
	cases := read(t, "prometheus/alerts_test.yml")
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(
		read(t, "prometheus/alerts.yml"), -1) {
		silent := strings.Index(cases, "alertname: "+alert[1]+"}")
		fires := strings.Index(cases, "alertname: "+alert[1]+"\n        exp_alerts:")
		testkit.Check(t, 0 <= silent && silent < fires, "no case shows that %s fires, and not too early", alert[1])
	}
}
