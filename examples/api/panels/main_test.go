package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

const shipped = "../grafana/dashboards/yuzhi.json"

// answering is a Prometheus that gives every query the same result, or none where hide matches it.
func answering(t *testing.T, hide string) (base string, asked *[]string) {
	asked = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, start := r.FormValue("query"), r.FormValue("start")
		*asked = append(*asked, query)
		switch {
		case strings.Contains(query, "ALERTS"):
			fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{"alertname":"Fired"},"values":[[%s,"1"]]}]}}`, start)
		case hide != "" && regexp.MustCompile(hide).MatchString(query):
			fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{},"values":[[%s,"NaN"]]}]}}`, start)
		default:
			fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{"yuzhi_limiter":"<user>"},"values":[[%s,"0.5"]]}]}}`, start)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

func TestAPanelWithoutDataFails(t *testing.T) {
	base, _ := answering(t, "wait_duration.*count")
	err := run(t.Context(), []string{"-dashboard", shipped, "-prometheus", base})
	testkit.Must(t, err != nil && strings.Contains(err.Error(), `"Waits by outcome"`) &&
		strings.HasPrefix(err.Error(), "1 complaints"), "one query has only NaN, and the error is %v", err)
}

func TestAlertsThatMustAndMustNotFire(t *testing.T) {
	base, _ := answering(t, "")
	for arguments, complaint := range map[string]string{
		"-fired=Fired -quiet=Other": "",
		"-fired=Fired,Other":        "Other did not fire",
		"-quiet=Fired":              "Fired fired",
	} {
		err := run(t.Context(), append([]string{"-dashboard", shipped, "-prometheus", base}, strings.Fields(arguments)...))
		if complaint == "" {
			testkit.NoErr(t, err)
		} else {
			testkit.Check(t, err != nil && strings.Contains(err.Error(), complaint), "%s: %v", arguments, err)
		}
	}
}

func TestWhatIsAskedHasNoVariableLeft(t *testing.T) {
	base, asked := answering(t, "")
	page := filepath.Join(t.TempDir(), "page.html")
	testkit.NoErr(t, run(t.Context(), []string{"-dashboard", shipped, "-prometheus", base, "-scrape=2s", "-html", page}))
	for _, query := range *asked {
		testkit.Check(t, !strings.Contains(query, "$"), "%s", query)
	}
	rate := slices.ContainsFunc(*asked, func(q string) bool { return strings.Contains(q, "[8s]") })
	testkit.Check(t, rate, "$__rate_interval of a scrape every 2 s is 8 s; asked was %v", *asked)

	// Every panel is on the page, and names that come from labels are text there.
	text, err := os.ReadFile(page)
	testkit.NoErr(t, err)
	d, err := load(shipped)
	testkit.NoErr(t, err)
	for _, p := range d.Panels {
		testkit.Check(t, strings.Contains(string(text), "<h2>"+p.Title+"</h2>"), "the page has no %q", p.Title)
	}
	testkit.Check(t, strings.Contains(string(text), "&lt;user&gt;") && !strings.Contains(string(text), "<user>"),
		"a label's value is markup")
}

// TestDashboardIsOneThatGrafanaTakes: what Grafana would silently mend, or show wrongly.
func TestDashboardIsOneThatGrafanaTakes(t *testing.T) {
	d, err := load(shipped)
	testkit.NoErr(t, err)
	ids := map[int]string{}
	taken := map[[2]int]string{}
	for i, p := range d.Panels {
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
		testkit.Check(t, p.Datasource.UID == "${datasource}", "%q asks the datasource %q", p.Title, p.Datasource.UID)
		testkit.Check(t, (p.Type == "stat") == (p.GridPos.Y == 0), "%q: the numbers come first", p.Title)
		for j, one := range p.Targets {
			testkit.Check(t, one.RefID == string(rune('A'+j)), "%q: query %d is called %s", p.Title, j, one.RefID)
			testkit.Check(t, !strings.Contains(one.Expr, "rate(") || strings.Contains(one.Expr, "[$__rate_interval]"),
				"%q has a rate over a time of its own: %s", p.Title, one.Expr)
			process := strings.Count(one.Expr, "{") == strings.Count(one.Expr, `instance=~"$instance"`)
			testkit.Check(t, process, "panel %d, %q, does not follow the choice of a process: %s", i, p.Title, one.Expr)
		}
	}
	testkit.Check(t, d.SchemaVersion >= 39 && d.UID != "", "schema %d, uid %q", d.SchemaVersion, d.UID)
}

func TestUnits(t *testing.T) {
	two := 2
	for _, c := range []struct {
		value    float64
		unit     string
		decimals *int
		want     string
	}{
		{0.00012, "s", nil, "120 µs"}, {0.0123, "s", nil, "12.3 ms"}, {2.5, "s", nil, "2.5 s"}, {0, "s", nil, "0 s"},
		{0.123, "percentunit", nil, "12.3 %"}, {0.5, "percentunit", &two, "50.00 %"},
		{123456, "none", nil, "123 k"}, {9999, "none", nil, "9999"}, {5, "suffix:tokens/s", nil, "5 tokens/s"},
	} {
		got := format(c.value, c.unit, c.decimals)
		testkit.Check(t, got == c.want, "%v in %s is %q, not %q", c.value, c.unit, got, c.want)
	}
}

func TestALineHasAGapWhereValuesAreMissing(t *testing.T) {
	at := func(s int) point { return point{At: time.Unix(int64(s), 0)} }
	found := runs([]point{at(1), at(2), at(5), at(6), at(7)}, time.Second)
	testkit.Check(t, len(found) == 2 && len(found[0]) == 2 && len(found[1]) == 3, "%v", found)
}
