package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestDashboardIsOneThatGrafanaTakes checks mistakes that Grafana would silently mend, or show
// wrongly. The script run tests its queries.
func TestDashboardIsOneThatGrafanaTakes(t *testing.T) {
	const columns = 24
	var d struct {
		UID           string
		SchemaVersion int
		Panels        []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  struct{ X, Y, W, H int }
			Datasource               struct{ UID string }
			Targets                  []struct{ Expr, RefID string }
		}
	}
	testkit.NoErr(t, json.Unmarshal([]byte(read(t, "grafana/dashboards/yuzhi.json")), &d))
	ids, taken := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		testkit.Check(t, ids[p.ID] == "", "%q and %q have the same id", p.Title, ids[p.ID])
		ids[p.ID] = p.Title
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
		testkit.Check(t, p.Description != "", "%q does not say what it shows", p.Title)
		testkit.Check(t, p.Datasource.UID == "${datasource}", "%q asks the datasource %q", p.Title,
			p.Datasource.UID)
		testkit.Check(t, (p.Type == "stat") == (p.GridPos.Y == 0), "%q: the numbers come first", p.Title)
		for j, one := range p.Targets {
			testkit.Check(t, one.RefID == string(rune('A'+j)), "%q: query %d is called %s", p.Title, j, one.RefID)
			testkit.Check(t, !strings.Contains(one.Expr, "rate(") || strings.Contains(one.Expr, "[$__rate_interval]"),
				"%q has a rate over a time of its own: %s", p.Title, one.Expr)
			testkit.Check(t, strings.Count(one.Expr, "{") == strings.Count(one.Expr, `instance=~"$instance"`),
				"%q does not follow the choice of a process: %s", p.Title, one.Expr)
		}
	}
	testkit.Check(t, d.SchemaVersion >= 39 && d.UID != "", "schema %d, uid %q", d.SchemaVersion, d.UID)
}
