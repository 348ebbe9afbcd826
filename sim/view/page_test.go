package view

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// hostile is text that a page must show and not obey.
const hostile = `</title><script src="https://example.com/x.js"></script><img src=x onerror=alert(1)> & ` +
	`"quoted" 'single' <!-- ]]> {{.}} ` + "\x00\x1b\u0085\ufffe\xff"

// wide is a parameter with long values.
const wide = "limits[0]=1000/s burst 2000,1000/s burst 4000,1000000/s burst 80000000"

// many is a parameter with 25 values.
const many = "policy.target=10ms,12ms,15ms,18ms,22ms,26ms,32ms,38ms,46ms,56ms,68ms,83ms,100ms,120ms,150ms,180ms," +
	"220ms,260ms,320ms,380ms,460ms,560ms,680ms,830ms,1s"

// pages are every kind of page, and two with hostile text in every place that takes text.
func pages(t *testing.T) map[string]string {
	bad := madeUp()
	bad.Scenario.Name, bad.Scenario.Description, bad.Report.Scenario = hostile, hostile, hostile
	bad.Report.ScenarioHash, bad.Command, bad.Text = hostile, hostile, hostile
	bad.Scenario.Workload.File, bad.Scenario.Groups[0].Name = hostile, hostile
	bad.Scenario.Workload.Kind = "replay"
	bad.Report.Members[0].Group, bad.Report.Rivals[0].Name = hostile, hostile
	const text, line = "name: made-up\n", "leasesim --seed 7"
	all := map[string]Document{
		"run": Run(madeUp()), "compare": Comparison(madeUp()), "wide compare": Comparison(ranged()),
		"hostile run": Run(bad), "hostile compare": Comparison(bad),
		"one parameter":  Sweep(swept(t, "policy.target=10ms,32ms,100ms,320ms,1s"), text, line),
		"many values":    Sweep(swept(t, many), text, line),
		"long values":    Sweep(swept(t, wide), text, line),
		"two parameters": Sweep(swept(t, "policy.target=10ms,20ms", "groups.web.count=1,2,3"), text, line),
		"three parameters": Sweep(
			swept(t, "policy.target=10ms,80ms", "policy.ttl=200ms", "groups.web.count=1,2"), text, line),
		"plan": Plan(planned(t), text, line), "miss": Plan(missed(t), text, line),
	}
	pages := map[string]string{}
	for name, d := range all {
		pages[name] = written(t, d, FormatHTML)
	}
	return pages
}

// ranged is a comparison whose table is as wide as it gets: all columns, with long ranges. All its charts
// differ.
func ranged() Result {
	r := madeUp()
	r.Report.Rivals[0].Name, r.Report.Series.Running[0] = "sliding_cells_client", 1
	for k := range r.Report.Rivals {
		r.Report.Rivals[k].FaultStock.Mean = 1
		for _, f := range r.Report.Rivals[k].All() {
			f.Low, f.High, f.Range = f.Mean*0.99876, f.Mean*1.00123, true
		}
	}
	return r
}

func TestAPageHasAllItsSections(t *testing.T) {
	wants := map[string]string{
		"run":              "Over time, How many tokens are admitted each second?, Figures, Side by side",
		"compare":          "Side by side, The algorithms, Over time",
		"one parameter":    "Over policy.target, All points",
		"two parameters":   "All points",
		"three parameters": "All points",
		"plan":             "Targets, Over load, Under stress, Trade-offs, Go",
		"miss":             "Closest miss, Trade-offs",
	}
	titles := regexp.MustCompile(`<(h[23])>(.*)</h[23]>`)
	all := pages(t)
	for name, page := range all {
		var got []string
		for _, m := range titles.FindAllStringSubmatch(page, -1) {
			got = append(got, m[2])
		}
		for title := range strings.SplitSeq(
			wants[name]+", Scenario file, How to repeat it, The machine that ran it", ", ") {
			testkit.Check(t, title == "" || slices.Contains(got, title), "%s: there is no section %q", name, title)
		}
	}
	says(t, all["run"], "Twenty processes that nobody ever ran.", "0123456789abcdef",
		"The bound holds: in no window of 10 replications", "Does not hold: false_reject_ratio &lt; 0.1%",
		"leasesim run -f made-up.yaml", "limits: [1000/s burst 2000]", "222.222ms", "888.888ms",
		"one central bucket",
		"a counter per window of")
	says(t, all["one parameter"], ">policy.target<", "Bands are their 95 % intervals, or the ranges of "+
		"the replications.", "&#34;low&#34;:", "name: made-up", "leasesim --seed 7")
}

// TestAPageIsWellFormedAndLoadsNothing: what hostile text can bring is an element, an attribute, or
// an address, and a page has none of them that a browser would follow.
func TestAPageIsWellFormedAndLoadsNothing(t *testing.T) {
	element := regexp.MustCompile(
		`(?i)^(link|img|image|iframe|object|embed|base|audio|video|source|form|use)$`)
	attribute := regexp.MustCompile(`(?i)^(src|href|srcset|action|data|on[a-z]+|xlink.*)$`)
	address := regexp.MustCompile(`https?:|url\(`)
	style := regexp.MustCompile(`url\(|@import|http|//`)
	meta := regexp.MustCompile(`<(meta [^>]*)>`)
	for name, page := range pages(t) {
		// HTML leaves meta open, which XML does not; all else that a page uses is the same in both.
		page = strings.Replace(page, Script, "", 1)
		d := xml.NewDecoder(strings.NewReader(meta.ReplaceAllString(page, "<$1/>")))
		d.Entity = xml.HTMLEntity
		elements, within := map[string]int{}, ""
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			line, column := d.InputPos()
			testkit.Must(t, err == nil, "%s: %d:%d: %v: %s", name, line, column, err,
				strings.Split(page, "\n")[line-1])
			switch token := token.(type) {
			case xml.StartElement:
				within = token.Name.Local
				elements[within]++
				testkit.Check(t, !element.MatchString(within), "%s: %s loads something", name, within)
				for _, a := range token.Attr {
					isName := a.Name.Local == "xmlns" || a.Name.Space == "xmlns"
					testkit.Check(t, !attribute.MatchString(a.Name.Local) && (isName || !address.MatchString(a.Value)),
						"%s: %s has %v=%q", name, within, a.Name, a.Value)
				}
			case xml.CharData:
				testkit.Check(t, within != "style" || !style.Match(token), "%s: the style loads something", name)
			case xml.EndElement:
				within = ""
			}
		}
		e := elements
		testkit.Check(t, e["html"] == 1 && e["h1"] == 1 && e["style"] == 1 && e["script"] == 1 &&
			strings.Contains(page, "default-src &#39;none&#39;"),
			"%s: %v", name, e)
	}
}

func TestFiguresOfTheMachineStandApart(t *testing.T) {
	// Given the same run on two machines,
	one, other := madeUp(), madeUp()
	other.Report.Machine.Elapsed, other.Report.Machine.RequestsPerS, other.Report.Machine.Parallel = 99, 1, 64
	// then their pages differ in the footer only.
	a, footerA, _ := strings.Cut(written(t, Run(one), FormatHTML), "<footer>")
	b, footerB, _ := strings.Cut(written(t, Run(other), FormatHTML), "<footer>")
	testkit.Check(t, a == b && footerA != footerB, "pages are equal but for the footer: %v; footers differ: %v",
		a == b, footerA != footerB)
}

func TestEqualReportsGiveEqualBytes(t *testing.T) {
	// The templates are shared: so at the same time, too.
	var wg sync.WaitGroup
	all := make([]string, 4)
	for i := range all {
		wg.Go(func() { all[i] = written(t, Run(madeUp()), FormatHTML) })
	}
	wg.Wait()
	testkit.Check(t, len(slices.Compact(all)) == 1, "two pages of one report differ")
}
