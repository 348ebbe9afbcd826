package render

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// hostile is text that a page must show and not obey.
const hostile = `</title><script src="https://example.com/x.js"></script><img src=x onerror=alert(1)> & "quoted" 'single' <!-- ]]> {{.}} ` + "\x00\x1b\u0085\ufffe\xff"

// pages are a run's and a comparison's page, as they are and with hostile text in every place that takes text.
func pages(t *testing.T) map[string]string {
	bad := madeUp()
	bad.Scenario.Name, bad.Scenario.Description, bad.Report.Scenario = hostile, hostile, hostile
	bad.Report.ScenarioHash, bad.Command, bad.Text = hostile, hostile, hostile
	bad.Scenario.Workload.File, bad.Scenario.Groups[0].Name = hostile, hostile
	bad.Scenario.Workload.Kind = "replay"
	bad.Report.Members[0].Group, bad.Report.Rivals[0].Name = hostile, hostile
	bad.Rules = []Rule{{hostile, hostile}}
	bad.Describe = func(string) string { return hostile }
	bad.Report.Machine.GoVersion = hostile
	return map[string]string{
		"run": written(t, Run, FormatHTML, madeUp()), "compare": written(t, Comparison, FormatHTML, madeUp()),
		"hostile run": written(t, Run, FormatHTML, bad), "hostile compare": written(t, Comparison, FormatHTML, bad),
	}
}

// tags are a page's tags with their attributes, as a browser reads them: text and style are not among them.
var tags = regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)

func TestAPageLoadsNothing(t *testing.T) {
	loads := regexp.MustCompile(`(?i)<(script|link|img|image|iframe|object|embed|base|audio|video|source|form|use)\b|\s(src|href|xlink:href|srcset|action|data|on[a-z]+)\s*=|http-equiv`)
	styles := regexp.MustCompile(`(?s)<style>(.*?)</style>`)
	for name, page := range pages(t) {
		for _, tag := range tags.FindAllString(page, -1) {
			if loads.MatchString(tag) {
				t.Errorf("%s: %s loads something", name, tag)
			}
			tag = strings.NewReplacer(` xmlns="http://www.w3.org/2000/svg"`, "").Replace(tag)
			if strings.Contains(tag, "http:") || strings.Contains(tag, "https:") || strings.Contains(tag, "url(") {
				t.Errorf("%s: %s names an address", name, tag)
			}
		}
		style := styles.FindAllStringSubmatch(page, -1)
		if len(style) != 1 {
			t.Fatalf("%s: %d styles", name, len(style))
		}
		for _, word := range []string{"url(", "@import", "http", "//"} {
			if strings.Contains(style[0][1], word) {
				t.Errorf("%s: the style has %q", name, word)
			}
		}
	}
}

func TestAPageIsWellFormed(t *testing.T) {
	meta := regexp.MustCompile(`<meta [^>]*>`)
	for name, page := range pages(t) {
		// HTML leaves meta open, which XML does not; all else that a page uses is the same in both.
		d := xml.NewDecoder(strings.NewReader(meta.ReplaceAllStringFunc(page, func(s string) string { return strings.TrimSuffix(s, ">") + "/>" })))
		d.Entity = xml.HTMLEntity
		elements := map[string]int{}
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				line, column := d.InputPos()
				t.Fatalf("%s: %d:%d: %v: %s", name, line, column, err, strings.Split(page, "\n")[line-1])
			}
			if start, ok := token.(xml.StartElement); ok {
				elements[start.Name.Local]++
			}
		}
		if elements["html"] != 1 || elements["h1"] != 1 || elements["svg"] < 5 || elements["svg"] != elements["figure"] || elements["script"] != 0 {
			t.Errorf("%s: %v", name, elements)
		}
	}
}

func TestAPageHasAllItsSections(t *testing.T) {
	all := pages(t)
	for name, want := range map[string][]string{
		"run": {
			"Over time", "Tokens per second", "The bucket in Redis", "Tokens in the processes", "Round trips to Redis per second",
			"Share per process", "Tokens per process", "In percent of its share", "Figures", "Side by side", "Worst excess over any window",
			"Policy", "Scenario", "Scenario file", "How to repeat it", "The machine that ran it",
		},
		"compare": {
			"Side by side", "In pictures", "Worst excess over any window", "Admitted, of what one central bucket would have", "Falsely rejected",
			"Round trips to Redis per second", "The worst process&#39;s share", "The algorithms", "Over time", "Share per process",
			"Policy", "Scenario", "Scenario file", "How to repeat it", "The machine that ran it",
		},
	} {
		for _, title := range want {
			if !strings.Contains(all[name], "<h2>"+title+"</h2>") && !strings.Contains(all[name], "<h3>"+title+"</h3>") {
				t.Errorf("%s: there is no section %q", name, title)
			}
		}
		for _, text := range []string{
			"Twenty processes that nobody ever ran.", "0123456789abcdef", "The bound holds: in no window of any of the 10 replications",
			"Does not hold: false_reject_ratio &lt; 0.1%", "leasesim run -f made-up.yaml", "limits: [1000/s burst 2000]", "100ms (default)", "400ms (default)",
			"one central bucket", "what fixed_window does",
		} {
			if !strings.Contains(all[name], text) {
				t.Errorf("%s: there is no %q", name, text)
			}
		}
	}
}

func TestWhatDependsOnTheMachineStandsApart(t *testing.T) {
	// Given the same run on two machines,
	one, other := madeUp(), madeUp()
	other.Report.Machine.Elapsed, other.Report.Machine.RequestsPerS, other.Report.Machine.Parallel = 99, 1, 64
	// then their pages differ in the footer only.
	a, footerA, _ := strings.Cut(written(t, Run, FormatHTML, one), "<footer>")
	b, footerB, _ := strings.Cut(written(t, Run, FormatHTML, other), "<footer>")
	if a != b || footerA == footerB {
		t.Errorf("pages are equal but for the footer: %v; footers differ: %v", a == b, footerA != footerB)
	}
}

func TestEqualReportsGiveEqualBytes(t *testing.T) {
	// Fonts are loaded once and shared: so at the same time, too.
	var wg sync.WaitGroup
	all := make([]map[string]string, 4)
	for i := range all {
		wg.Go(func() { all[i] = pages(t) })
	}
	wg.Wait()
	for _, other := range all[1:] {
		for name, page := range all[0] {
			if other[name] != page {
				t.Errorf("%s: two pages of one report differ", name)
			}
		}
	}
}

func TestAPageHasNoColourOfItsOwnButThePalettes(t *testing.T) {
	for name, page := range pages(t) {
		if strings.Contains(page, "#0102") {
			t.Errorf("%s: a stand-in was left", name)
		}
		if strings.Contains(page, "Liberation Sans,") || strings.Contains(page, "font-variant:") {
			t.Errorf("%s: a plot names a face", name)
		}
		for s := range series + 2 {
			if s != ink && s != paper && !strings.Contains(page, s.variable()) {
				t.Errorf("%s: nothing is drawn in %s", name, s.variable())
			}
		}
		style, _, _ := strings.Cut(page, "</style>")
		for s := range series + seriesCount {
			variable := strings.TrimSuffix(strings.TrimPrefix(s.variable(), "var("), ")")
			if strings.Count(style, variable+":") != 2 {
				t.Errorf("%s: %s is not there once for a light and once for a dark page", name, variable)
			}
		}
	}
}
