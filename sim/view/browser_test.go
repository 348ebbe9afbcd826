package view

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// browser is the command of a headless Chromium. Without one the test is skipped, or fails where
// one is required.
func browser(t *testing.T) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("REQUIRE_BROWSER") != "" {
		t.Fatal("there is no chromium, and REQUIRE_BROWSER is set")
	}
	t.Skip("there is no chromium; with REQUIRE_BROWSER=1 that is a failure")
	return ""
}

// faultsScript finds what cannot be read in every frame of a page.
//
//go:embed testdata/faults.js
var faultsScript string

// widths are those of a screen on a desk and of a telephone, in pixels.
var widths = []int{1280, 390}

// faults lists what a browser finds wrong with pages, by their names, at all widths. With
// SCREENSHOT=FOLDER a picture of each is left there.
func faults(t *testing.T, pages map[string]string) (found []string) {
	t.Helper()
	folder := t.TempDir()
	var frames strings.Builder
	for name, page := range pages {
		for _, width := range widths {
			title := fmt.Sprintf("%s at %d", name, width)
			fmt.Fprintf(&frames,
				`<iframe title="%s" style="border:0;width:%dpx;height:900px" srcdoc="%s"></iframe>`+"\n",
				html.EscapeString(title), width, html.EscapeString(page))
			if pictures := os.Getenv("SCREENSHOT"); pictures != "" {
				one := filepath.Join(folder, "one.html")
				testkit.NoErr(t, os.WriteFile(one, fmt.Appendf(nil,
					`<body style="margin:0"><iframe style="border:0;width:%dpx;height:5000px" srcdoc="%s"></iframe>`,
					width, html.EscapeString(page)), 0o644))
				chromium(t, "--screenshot="+filepath.Join(pictures, strings.ReplaceAll(title, " ", "-")+".png"),
					fmt.Sprintf("--window-size=%d,5000", max(width, 500)), one)
			}
		}
	}
	all := filepath.Join(folder, "all.html")
	testkit.NoErr(t, os.WriteFile(
		all, []byte(`<!DOCTYPE html><meta charset="utf-8"><pre id="faults"></pre>`+"\n"+
			frames.String()+"<script>"+faultsScript+"</script>"), 0o644))
	dom := chromium(t, "--dump-dom", "--window-size=1400,1000", all)
	text := regexp.MustCompile(`<pre id="faults">([^<]*)</pre>`).FindStringSubmatch(dom)
	testkit.Must(t, text != nil && text[1] != "", "the browser told nothing")
	testkit.NoErr(t, json.Unmarshal([]byte(html.UnescapeString(text[1])), &found))
	return found
}

// chromium returns what a headless Chromium prints.
func chromium(t *testing.T, arguments ...string) string {
	t.Helper()
	arguments = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--enable-logging=stderr", "--hide-scrollbars", "--user-data-dir=" + t.TempDir()}, arguments...)
	var problems strings.Builder
	command := exec.CommandContext(t.Context(), browser(t), arguments...)
	command.Stderr = &problems
	out, err := command.Output()
	testkit.Must(t, err == nil, "%v\n%s", err, problems.String())
	testkit.Check(t, !strings.Contains(problems.String(), "CONSOLE"), "the console has\n%s", problems.String())
	return string(out)
}

// TestPagesCanBeRead: on a desk and on a telephone, no text of a page overlaps another, is cut, or
// is too small, each chart is drawn and has values under the pointer, a page is not wider than the screen, and what is has a shadow that says so. On a desk
// every table shows all its columns.
func TestPagesCanBeRead(t *testing.T) {
	all := pages(t)
	for _, like := range []string{"compare", "hostile run", "hostile compare", "one parameter", "two parameters", "miss"} {
		delete(all, like) // which is like another one
	}
	for _, fault := range faults(t, all) {
		t.Error(fault)
	}
}

// TestABrowserSeesWhatCannotBeRead: what the test above is worth.
func TestABrowserSeesWhatCannotBeRead(t *testing.T) {
	cases := map[string]struct{ page, want string }{
		"fine":         {`<p>one</p>`, ""},
		"wide":         {`<p style="width:3000px">one</p>`, "the page is wider than the screen"},
		"small":        {`<p style="font-size:6px">in it</p>`, `"in it" has 6 px`},
		"over":         {`<p>one</p><p style="position:relative;top:-30px">two</p>`, `"one" lies over "two"`},
		"cut by a box": {`<p style="overflow:hidden;white-space:nowrap;width:9px">a text</p>`, `"a text" is cut`},
		"chart":        {`<p>one</p><div data-chart="{}"></div>`, "a chart has no canvas"},
		"scrolled": {`<p style="overflow-x:auto;white-space:nowrap;width:50px">a long text</p>`,
			`"a long text" scrolls without a hint`},
		"with a shadow": {`<p style="overflow-x:auto;white-space:nowrap;width:50px;` +
			`background:linear-gradient(red,blue)">a long text</p>`, ""},
		"wide table": {`<div style="overflow-x:auto;width:300px;background:linear-gradient(red,blue)">` +
			`<table style="width:400px"><tr><td>one</table></div>`, "a table of 400 px is cut at 300"},
	}
	pages := map[string]string{}
	for name, c := range cases {
		pages[name] = `<!DOCTYPE html><body style="font:16px sans-serif">` + c.page
	}
	all := faults(t, pages)
	for name, c := range cases {
		found := slices.DeleteFunc(slices.Clone(all),
			func(s string) bool { return !strings.HasPrefix(s, name+" at ") })
		says := func(s string) bool { return strings.HasSuffix(s, ": "+c.want) }
		testkit.Check(t, len(found) == 0 && c.want == "" || c.want != "" && slices.ContainsFunc(found, says),
			"%s: found %q, want %q", name, found, c.want)
	}
}
