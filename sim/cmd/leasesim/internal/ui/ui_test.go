package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// serve serves the page until the test ends, and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- Serve(ctx, 0, func(url string) { ready <- url }) }()
	t.Cleanup(func() { stop(); testkit.NoErr(t, <-ended) })
	return <-ready
}

// made is a server without a listener.
func made() *server {
	return &server{token: "secret", hosts: []string{"127.0.0.1:7"}}
}

// ask answers a request of the page; headers are pairs.
func ask(ctx context.Context, s *server, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:7/"+path, nil)
	r.Header.Set("X-Token", "secret")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	return w
}

// events are the lines of an answer, without its progress.
func events(t *testing.T, w *httptest.ResponseRecorder) (all []event, kinds string) {
	t.Helper()
	testkit.Must(t, w.Code == http.StatusOK, "%d: %s", w.Code, w.Body)
	for d := json.NewDecoder(bytes.NewReader(w.Body.Bytes())); d.More(); {
		var e event
		testkit.NoErr(t, d.Decode(&e))
		if e.Kind != "progress" {
			all, kinds = append(all, e), kinds+e.Kind+" "
		}
	}
	return all, kinds
}

// tiny is a fleet that takes no time.
const tiny = "processes=2&rate=100&burst=50&seconds=3"

func TestOtherPagesOfTheBrowserAreKeptOut(t *testing.T) {
	address := serve(t)
	send := func(method, path, host, token string) (int, string, http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), method, address+path, nil)
		testkit.NoErr(t, err)
		r.Host = host
		if token != "" {
			r.Header.Set("X-Token", token)
		}
		answer, err := http.DefaultClient.Do(r)
		testkit.NoErr(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		testkit.NoErr(t, err)
		return answer.StatusCode, string(text), answer.Header
	}
	// Given the page under both of its names, which has the token and may load nothing from elsewhere,
	at, err := url.Parse(address)
	testkit.NoErr(t, err)
	own := at.Host
	status, page, headers := send("GET", "", "localhost:"+at.Port(), "")
	testkit.Check(t, status == 200 && strings.HasPrefix(headers.Get("Content-Security-Policy"), "default-src 'none'"),
		"%d %v", status, headers)
	_, after, _ := strings.Cut(page, `name="token" content="`)
	token, _, _ := strings.Cut(after, `"`)
	status, _, _ = send("POST", "simulate?"+tiny, own, token)
	testkit.Check(t, status == 200 && len(token) >= 26, "%d with the token %q", status, token)
	// then no other name leads there, and nothing simulates without the token or for another page's form.
	for _, c := range []struct {
		method, path, host, token string
		want                      int
	}{
		{"GET", "", "evil.example:" + at.Port(), "", 421},
		{"GET", "", "127.0.0.1:1", "", 421},
		{"POST", "simulate?" + tiny, "evil.example", token, 421},
		{"POST", "simulate?" + tiny, own, "", 403},
		{"POST", "plan?" + tiny, own, token[1:], 403},
		{"GET", "simulate?" + tiny, own, token, 405},
		{"OPTIONS", "simulate?" + tiny, own, "", 405},
	} {
		status, _, headers := send(c.method, c.path, c.host, c.token)
		testkit.Check(t, status == c.want && headers.Get("Access-Control-Allow-Origin") == "",
			"%s %s of %s: %d, want %d", c.method, c.path, c.host, status, c.want)
	}
}

func TestALinkHoldsTheWholeScenario(t *testing.T) {
	texts := func(query url.Values) event {
		s := read(query)
		testkit.Must(t, len(s.validate()) == 0, "%v: %v", query, s.validate())
		text, err := scenfile.Marshal(s.whole())
		testkit.NoErr(t, err)
		again, err := scenfile.Parse("page", text)
		testkit.NoErr(t, err)
		testkit.Check(t, again.Hash() == s.whole().Hash(), "%v: another scenario after\n%s", query, text)
		return event{YAML: string(text)}
	}
	// Given the link of a page with all defaults and a fault, when one knob is another, then so is the
	// scenario.
	link := url.Values{"fault": {"hang"}}
	first := texts(link)
	for _, section := range sections {
		for _, k := range section.Knobs {
			for _, c := range k.Choices {
				other := url.Values{"fault": {"hang"}}
				other.Set(k.Name, c.Value)
				same := c.Value == k.Default && k.Name != "fault" || k.Name == "fault" && c.Value == "hang"
				testkit.Check(t, (texts(other).YAML == first.YAML) == same, "%s=%s", k.Name, c.Value)
			}
			for _, x := range k.Steps {
				link := url.Values{"fault": {"hang"}}
				link.Set(k.Name, fmt.Sprint(x))
				testkit.Check(t, (texts(link).YAML == first.YAML) == (fmt.Sprint(x) == k.Default), "%s=%v", k.Name, x)
			}
		}
	}
}

func TestAnInvalidKnobSaysTheAllowedValues(t *testing.T) {
	for query, want := range map[string]string{
		"processes=1000000":          "processes: is 1000000, must be 1 to 100000",
		"processes=1.5":              `processes: is "1.5", must be a whole number`,
		"rate=0":                     `rate: is "0", must be a number above 0, in requests/s`,
		"burst=9e14":                 "rate: is 5000/s burst 900000000000000, takes longer than 100 years",
		"load=NaN":                   `load: is "NaN", must be a number above 0, in × the limit`,
		"load=1e9":                   "load: is 1000000000, must be",
		"shape=square":               `shape: is "square", must be one of poisson, constant`,
		"target_ms=1e9":              "target_ms: is 277h46m40s, must be 1ms to 30m0s",
		"ttl_ms=1":                   "ttl_ms: is 1ms, must be",
		"fault=flood":                `fault: is "flood", must be one of none, hang`,
		"seconds=1e9":                "seconds: is 277777h46m57s, must be 1ms to 720h0m0s",
		"round_trip_ms=1e12":         "round_trip_ms: is ",
		"color=red":                  `: The link has a setting "color", which this page lacks.`,
		"fault=crash&fault_s=0":      `fault_s: is "0", must be`,
		"fault=restart_empty&load=0": `load: is "0", must be`,
	} {
		w := ask(t.Context(), made(), "simulate?"+query)
		all, kinds := events(t, w)
		testkit.Must(t, kinds == "wrong ", "%s: %s", query, kinds)
		got := all[0].Wrong[0].Knob + ": " + all[0].Wrong[0].Text
		testkit.Check(t, strings.HasPrefix(got, want), "%s: %s, want %s", query, got, want)
	}
}

func TestShortRunsComeFirstAndLongOnesReplaceThem(t *testing.T) {
	all, kinds := events(t, ask(t.Context(), made(), "simulate?load=2&fallback=deny&fault=hang&fault_s=1&"+tiny))
	testkit.Must(t, kinds == "texts figures loads rivals figures loads rivals done ", "%s", kinds)
	short, long := all[1], all[4]
	testkit.Check(t, strings.Contains(short.Text, "a first answer") && strings.HasPrefix(long.Text, "10 runs of"),
		"%q, then %q", short.Text, long.Text)
	names := []string{"admitted, of one central bucket", "rejected wrongly", "tokens above the bound",
		"lease calls per second", "Redis CPU, busiest shard"}
	for i, f := range long.Figures {
		testkit.Check(t, f.Name == names[i] && f.Value != "" && f.Exact != "" && f.Text != "", "%+v", f)
	}
	testkit.Check(t, len(long.Figures) == len(names) && strings.Contains(all[0].Code, "hybrid.Config{"), "%+v", all[0])
	testkit.Check(t, slices.ContainsFunc(long.Verdicts, func(v view.Verdict) bool { return strings.Contains(v.Text, "Redis hangs") }),
		"the verdicts are %v", long.Verdicts)
	testkit.Check(t, strings.HasSuffix(long.Figures[1].Fault, " by the fault"), "%+v hides the fault's cost", long.Figures)
	testkit.Check(t, len(all[5].Tables[0].Cells) == 1+len(loads), "the loads are %v", all[5].Tables[0].Cells)
}

func TestALongSimulationOffersAShorterOne(t *testing.T) {
	s := made()
	all, kinds := events(t, ask(t.Context(), s, "simulate?rate=200000&burst=200000&processes=1000&load=5&seconds=600"))
	testkit.Must(t, kinds == "texts long ", "%s", kinds)
	testkit.Check(t, strings.HasPrefix(all[1].Text, "No figures yet: 2 runs of "), "%q", all[1].Text)
	link := url.Values{"rate": {"200000"}, "seconds": {fmt.Sprint(all[1].Seconds)}}
	a := &answer{read(link), false, &s.pace, func(event) {}, false}
	testkit.Check(t, !a.tooLong(a.short(1.1, quickReps, quickFor, true), ""), "%v s are too long", all[1].Seconds)
}

func TestTheNextChangeEndsASimulation(t *testing.T) {
	for _, path := range []string{"simulate?seconds=100000", "plan?seconds=100000"} {
		// Given a request that takes minutes, when its page goes away, then it ends.
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan *httptest.ResponseRecorder)
		go func() { ended <- ask(ctx, made(), path, "X-Anyway", "1", "X-Wrong", "0.5") }()
		leave()
		w := <-ended
		testkit.Check(t, !strings.Contains(w.Body.String(), `"failed"`), "%s: %s", path, w.Body)
	}
}

func TestTheEndOfTheServerEndsItsSimulations(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- Serve(ctx, 0, func(url string) { ready <- url }) }()
	address := <-ready
	answer, err := http.Get(address)
	testkit.NoErr(t, err)
	page, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	testkit.NoErr(t, err)
	_, after, _ := strings.Cut(string(page), `name="token" content="`)
	token, _, _ := strings.Cut(after, `"`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"simulate?seconds=100000", nil)
	testkit.NoErr(t, err)
	r.Header.Set("X-Token", token)
	r.Header.Set("X-Anyway", "1")
	answer, err = http.DefaultClient.Do(r)
	testkit.NoErr(t, err)
	defer answer.Body.Close()
	stop()
	testkit.NoErr(t, <-ended)
	_, err = io.ReadAll(answer.Body)
	testkit.Check(t, err != nil, "the answer went on")
}

func TestAPlanSaysItsProgressAndItsPolicy(t *testing.T) {
	w := ask(t.Context(), made(), "plan?"+tiny, "X-Wrong", "5")
	all, kinds := events(t, w)
	testkit.Must(t, kinds == "plan ", "%s", kinds)
	testkit.Check(t, strings.Contains(w.Body.String(), `"progress"`) && all[0].Policy != nil &&
		strings.Contains(w.Body.String(), "Target:"), "%s", w.Body)
	testkit.Check(t, strings.Contains(all[0].Text, "wrong rejects at most 5 %"), "figures have keys: %s", w.Body)
	for _, bad := range []string{"", "0", "100", "-1", "half"} {
		_, kinds := events(t, ask(t.Context(), made(), "plan?"+tiny, "X-Wrong", bad))
		testkit.Check(t, kinds == "wrong ", "%q: %s", bad, kinds)
	}
}
