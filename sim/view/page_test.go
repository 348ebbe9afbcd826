package view

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

// pages are every kind of page, and two with hostile text in every place that takes text.
func pages(t *testing.T) map[string]string {
	bad := madeUp()
	bad.Scenario.Name, bad.Scenario.Description, bad.Report.Scenario = hostile, hostile, hostile
	bad.Report.ScenarioHash, bad.Command, bad.Text = hostile, hostile, hostile
	bad.Scenario.Workload.File, bad.Scenario.Groups[0].Name = hostile, hostile
	bad.Scenario.Workload.Kind = "replay"
	bad.Report.Members[0].Group, bad.Report.Rivals[0].Name = hostile, hostile
	bad.Describe = func(string) string { return hostile }
	bad.Report.Machine.GoVersion = hostile
	const text, command = "name: made-up\n", "leasesim --seed 7"
	all := map[string]Document{
		"run": Run(madeUp()), "compare": Comparison(madeUp()), "hostile run": Run(bad), "hostile compare": Comparison(bad),
		"one parameter":    Sweep(swept(t, "policy.target=10ms..1s:log:5"), text, command),
		"two parameters":   Sweep(swept(t, "policy.target=10ms,20ms", "groups.web.count=1..3:lin:3"), text, command),
		"three parameters": Sweep(swept(t, "policy.target=10ms,80ms", "policy.ttl=100ms", "groups.web.count=1,2"), text, command),
		"plan":             Plan(planned(t), text, command), "miss": Plan(missed(t), text, command),
	}
	written := map[string]string{}
	for name, d := range all {
		var b strings.Builder
		if err := d.Write(&b, FormatHTML); err != nil {
			t.Fatal(err)
		}
		written[name] = b.String()
	}
	return written
}

func TestAPageHasAllItsSections(t *testing.T) {
	for name, page := range pages(t) {
		wants := map[string][]string{
			"run": {
				"Over time", "Tokens per second", "The bucket in Redis", "Tokens in the processes", "Round trips to Redis per second",
				"Share per process", "Tokens per process", "Figures", "Side by side",
			},
			"compare": {
				"Side by side", "The algorithms", "Over time", "Share per process",
			},
			"one parameter":    {"Over policy.target", "The trade-off", "All points"},
			"two parameters":   {"Over groups.web.count", "The trade-off", "All points"},
			"three parameters": {"The trade-off", "All points"},
			"plan":             {"The trade-off", "Targets", "Figures", "Under stress", "Trade-offs", "Go"},
			"miss":             {"The trade-off", "Closest miss", "Trade-offs"},
		}[name]
		for _, title := range append(wants, "Scenario file", "How to repeat it", "The machine that ran it") {
			if !strings.Contains(page, "<h2>"+title+"</h2>") && !strings.Contains(page, "<h3>"+title+"</h3>") {
				t.Errorf("%s: there is no section %q", name, title)
			}
		}
	}
	for name, wants := range map[string][]string{
		"run": {
			"Twenty processes that nobody ever ran.", "0123456789abcdef", "The bound holds: in no window of 10 replications",
			"Does not hold: false_reject_ratio &lt; 0.1%", "leasesim run -f made-up.yaml", "limits: [1000/s burst 2000]", "100ms", "400ms",
			"one central bucket", "what fixed_window does",
		},
		"one parameter":  {">policy.target<", "The means, with their 95 % intervals as bands.", "fill-opacity", "name: made-up", "leasesim --seed 7"},
		"two parameters": {"policy.target 10ms", "policy.target 20ms"},
	} {
		says(t, pages(t)[name], wants...)
	}
}

// tags are a page's tags with their attributes, as a browser reads them: text and style are not
// among them.
var tags = regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)

func TestAPageLoadsNothing(t *testing.T) {
	loads := regexp.MustCompile(`(?i)<(script|link|img|image|iframe|object|embed|base|audio|video|source|form|use)\b|\s(src|href|xlink:href|srcset|action|data|on[a-z]+)\s*=|http-equiv`)
	styles := regexp.MustCompile(`(?s)<style>(.*?)</style>`)
	names := strings.NewReplacer(`xmlns="http://www.w3.org/2000/svg"`, "", `xmlns:xlink="http://www.w3.org/1999/xlink"`, "")
	for name, page := range pages(t) {
		for _, tag := range tags.FindAllString(page, -1) {
			if loads.MatchString(tag) {
				t.Errorf("%s: %s loads something", name, tag)
			}
			tag = names.Replace(tag)
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
		if elements["html"] != 1 || elements["h1"] != 1 || elements["svg"] < 1 || elements["svg"] != elements["figure"] || elements["script"] != 0 {
			t.Errorf("%s: %v", name, elements)
		}
	}
}

func TestWhatDependsOnTheMachineStandsApart(t *testing.T) {
	// Given the same run on two machines,
	one, other := madeUp(), madeUp()
	other.Report.Machine.Elapsed, other.Report.Machine.RequestsPerS, other.Report.Machine.Parallel = 99, 1, 64
	// then their pages differ in the footer only.
	a, footerA, _ := strings.Cut(written(t, Run(one), FormatHTML), "<footer>")
	b, footerB, _ := strings.Cut(written(t, Run(other), FormatHTML), "<footer>")
	if a != b || footerA == footerB {
		t.Errorf("pages are equal but for the footer: %v; footers differ: %v", a == b, footerA != footerB)
	}
}

func TestEqualReportsGiveEqualBytes(t *testing.T) {
	// Fonts are loaded once and shared: so at the same time, too.
	var wg sync.WaitGroup
	all := make([]string, 4)
	for i := range all {
		wg.Go(func() { all[i] = written(t, Run(madeUp()), FormatHTML) })
	}
	wg.Wait()
	for _, other := range all[1:] {
		if other != all[0] {
			t.Error("two pages of one report differ")
		}
	}
}
