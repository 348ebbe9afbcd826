package ui

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// tab is a page in a headless Chromium, which a test drives through a pipe, as its developer tools do.
type tab struct {
	t       *testing.T
	out     *os.File
	session string

	mu       sync.Mutex
	calls    int
	waiting  map[int]chan message
	problems []string // errors and warnings of the console, and what could not be loaded
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

// browser starts a Chromium with one empty tab. Without one the test is skipped, or fails where one is
// required.
func browser(t *testing.T) *tab {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	switch {
	case path == "" && os.Getenv("REQUIRE_BROWSER") != "":
		t.Fatal("there is no chromium, and REQUIRE_BROWSER is set")
	case path == "":
		t.Skip("there is no chromium; with REQUIRE_BROWSER=1 that is a failure")
	}
	theirIn, out, err := os.Pipe()
	testkit.NoErr(t, err)
	in, theirOut, err := os.Pipe()
	testkit.NoErr(t, err)
	// Processes of the browser may write there for a moment after it has ended, which t.TempDir takes for a
	// failure.
	folder, err := os.MkdirTemp("", "leasesim-ui") //nolint:usetesting // see above
	testkit.NoErr(t, err)
	c := exec.CommandContext(t.Context(), path, "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--user-data-dir="+folder, "--remote-debugging-pipe")
	c.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	testkit.NoErr(t, c.Start())
	theirIn.Close()
	theirOut.Close()
	b := &tab{t: t, out: out, waiting: map[int]chan message{}}
	go b.listen(in)
	t.Cleanup(func() {
		_ = c.Wait() // the test's context has ended it
		_ = os.RemoveAll(folder)
		out.Close()
		in.Close()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// listen reads answers and events, which a zero byte ends.
func (b *tab) listen(in *os.File) {
	for r := bufio.NewReader(in); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch m.Method {
		case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
			b.problems = append(b.problems, string(m.Params))
		}
		if answer := b.waiting[m.ID]; answer != nil {
			answer <- m
		}
		b.mu.Unlock()
	}
}

// call calls a method of the browser and reads its result.
func (b *tab) call(method string, params map[string]any, result any) {
	b.t.Helper()
	answer := make(chan message, 1)
	b.mu.Lock()
	b.calls++
	id := b.calls
	b.waiting[id] = answer
	b.mu.Unlock()
	text, err := json.Marshal(struct {
		ID        int            `json:"id"`
		Method    string         `json:"method"`
		Params    map[string]any `json:"params,omitempty"`
		SessionID string         `json:"sessionId,omitempty"`
	}{id, method, params, b.session})
	testkit.NoErr(b.t, err)
	_, err = b.out.Write(append(text, 0))
	testkit.NoErr(b.t, err)
	select {
	case m := <-answer:
		testkit.Must(b.t, m.Error == nil, "%s: %s", method, m.Error)
		if result != nil {
			testkit.NoErr(b.t, json.Unmarshal(m.Result, result))
		}
	case <-b.t.Context().Done():
		b.t.Fatal("the browser has ended")
	}
}

// eval returns the value of an expression on the page, as text.
func (b *tab) eval(expression string) string {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	testkit.Must(b.t, r.ExceptionDetails == nil, "%s: %s", expression, r.ExceptionDetails)
	return fmt.Sprint(r.Result.Value)
}

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.t.Helper()
	for from := time.Now(); b.eval(expression) != "true"; time.Sleep(20 * time.Millisecond) {
		testkit.Must(b.t, time.Since(from) < 5*time.Minute, "not within five minutes: %s\nthe page has\n%s\nthe console has\n%s",
			expression, b.eval(`document.body?.innerText ?? ''`), b.console())
	}
}

// open loads a page on a screen of that width.
func (b *tab) open(url string, width int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.until(`document.readyState === 'complete' && typeof knobs === 'object'`)
}

// press presses and releases a key.
func (b *tab) press(key string, code int) {
	b.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		text := ""
		if key == "Enter" && kind == "keyDown" {
			text = "\r"
		}
		b.call("Input.dispatchKeyEvent", map[string]any{
			"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}, nil)
	}
}

// write writes into the field that has the focus.
func (b *tab) write(text string) {
	b.t.Helper()
	b.call("Input.insertText", map[string]any{"text": text}, nil)
}

// picture leaves pictures of the page, each as high as a screen, in the folder of SCREENSHOT, where that is
// set.
func (b *tab) picture(name string, width int) {
	folder, high := os.Getenv("SCREENSHOT"), 0
	if folder == "" {
		return
	}
	_, err := fmt.Sscan(b.eval(`document.documentElement.getBoundingClientRect().height`), &high)
	testkit.NoErr(b.t, err)
	for top := 0; top < high; top += 1200 {
		var p struct{ Data string }
		clip := map[string]any{"x": 0, "y": top, "width": width, "height": min(1200, high-top), "scale": 1}
		b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true, "clip": clip}, &p)
		data, err := base64.StdEncoding.DecodeString(p.Data)
		testkit.NoErr(b.t, err)
		file := fmt.Sprintf("%s-%d-%d.png", name, width, top)
		testkit.NoErr(b.t, os.WriteFile(filepath.Join(folder, file), data, 0o644))
	}
}

// unreadable lists what cannot be read on the page, as the test of the reports' pages finds it.
func (b *tab) unreadable() string {
	b.t.Helper()
	script, err := os.ReadFile("../../../../view/testdata/faults.js")
	testkit.NoErr(b.t, err)
	finds, _, _ := strings.Cut(string(script), "\naddEventListener(")
	// All of a tall page is seen at once; the page may load what it has asked for.
	return b.eval(`(() => {` + finds + `
		const loaded = { getEntriesByType: () => [] }
		return faults({ title: innerWidth + ' px', contentDocument: document,
			contentWindow: { performance: loaded, MouseEvent } }).join('\n') })()`)
}

// console are the problems so far.
func (b *tab) console() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.problems, "\n")
}
