package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

var update = flag.Bool("update", false, "draw the pictures of the pages, instead of comparing with them")

// isDrawn checks that svg is what a file of docs/ has, or writes it.
func isDrawn(t *testing.T, file, svg string) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", file)
	if *update {
		testkit.NoErr(t, os.WriteFile(path, []byte(svg), 0o644))
	}
	drawn, err := os.ReadFile(path)
	testkit.Check(t, err == nil && string(drawn) == svg, "docs/%s is old (%v): "+
		"YUZHI_LONG=1 go test ./internal/docs -run Picture -update", file, err)
}

// The three pictures of docs/windows.md show the requests around a boundary that a fixed window, a
// sliding one and a token bucket admit. quota and window are the limit of all: 100 in a minute.
const (
	quota  = 100
	window = time.Minute
	shown  = 3 * time.Minute
)

// requests are an attack on the boundary at one minute: one request that begins the first window,
// 99 in its last second, 100 in the first second of the next one, and then two a second.
func requests() (all []time.Duration) {
	all = append(all, 0)
	for i := range time.Duration(99) {
		all = append(all, 59*time.Second+i*10*time.Millisecond)
	}
	for i := range time.Duration(100) {
		all = append(all, 60*time.Second+i*10*time.Millisecond)
	}
	for at := 61 * time.Second; at < shown; at += 500 * time.Millisecond {
		all = append(all, at)
	}
	return all
}

// picture is one algorithm and what it admitted.
type picture struct {
	file, title string
	admitted    []time.Duration
}

func pictures() []picture {
	return []picture{
		{"fixed-window.svg", "a fixed window: 100 each 1m, counted anew", ask(lease.Calendar(quota, window, 0))},
		asked("sliding-window.svg", "a sliding window", lease.Sliding(quota, window)),
		asked("bucket.svg", "a token bucket", lease.PerMinute(quota)),
	}
}

func asked(file, name string, l lease.Limit) picture {
	return picture{file, name + ": " + l.String(), ask(l)}
}

// ask is the reference bucket with the limit l, asked for each request.
func ask(l lease.Limit) (admitted []time.Duration) {
	const start = 1_700_000_040_000_000 // a whole minute
	var b protocol.Bucket
	config := lease.Policy{}.ConfigFor([]lease.Limit{l}, 0, 0)
	for i, at := range requests() {
		r := lease.Request{
			Holder: "one", Seq: int64(i + 1), Config: config, Want: 1, Need: 1, Waiting: 1, Weight: 1,
		}
		var g lease.Grant
		if err := b.Call(start+at.Microseconds(), &r, &g); err != nil {
			panic(err)
		}
		if g.Granted == 1 {
			admitted = append(admitted, at)
		}
	}
	return admitted
}

// worst is the window of a minute with the most admitted, and how many they are.
func worst(admitted []time.Duration) (from time.Duration, most int) {
	for i, at := range admitted {
		n := 0
		for _, later := range admitted[i:] {
			if later < at+window {
				n++
			}
		}
		if n > most {
			from, most = at, n
		}
	}
	return from, most
}

// The pictures are as wide as a phone, so that their text is readable there.
const (
	width, height = 390, 170
	left, base    = 12, 138 // the time axis begins here
	scale         = 2.0     // pixels a second
	tall          = 0.9     // pixels a request
)

// svg draws one bar a second, and below it the worst minute.
func (p picture) svg() string {
	var s strings.Builder
	from, most := worst(p.admitted)
	x := func(at time.Duration) float64 { return left + at.Seconds()*scale }
	color := "#2a78b8"
	if most > quota {
		color = "#c2541b"
	}
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" `+
		`font-family="sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&s, `<title>%s admits %d in the worst minute</title>`+"\n", p.title, most)
	fmt.Fprintf(&s, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&s, `<text x="%d" y="20" font-weight="bold">%s</text>`+"\n", left, p.title)
	fmt.Fprintf(&s, `<rect x="%.1f" y="32" width="%.1f" height="%d" fill="%s" fill-opacity="0.15"/>`+"\n",
		x(from), window.Seconds()*scale, base-32, color)
	fmt.Fprintf(&s, `<text x="%.1f" y="46" fill="%s">%d in a minute</text>`+"\n", x(from)+6, color, most)
	bars := make(map[int]int)
	for _, at := range p.admitted {
		bars[int(at/time.Second)]++
	}
	for second := range int(shown / time.Second) {
		if n := bars[second]; n > 0 {
			fmt.Fprintf(&s, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#333333"/>`+"\n",
				x(time.Duration(second)*time.Second), base-float64(n)*tall, scale-0.3, float64(n)*tall)
		}
	}
	fmt.Fprintf(&s, `<path d="M%d %d H%.1f" stroke="#333333"/>`+"\n", left, base, x(shown))
	for at := time.Duration(0); at <= shown; at += window {
		fmt.Fprintf(&s, `<path d="M%.1f %d v5" stroke="#333333"/>`, x(at), base)
		fmt.Fprintf(&s, `<text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n", x(at), base+19, at.Minutes())
	}
	fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end">minutes; bars: admitted a second</text>`+"\n</svg>\n",
		width-4, height-1)
	return s.String()
}

// TestThePicturesShowWhatTheLimitsDo: the pictures in docs/ are those that are drawn now,
// and the page says the numbers that are in them.
func TestThePicturesShowWhatTheLimitsDo(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "windows.md"))
	testkit.NoErr(t, err)
	want := map[string]string{
		"fixed-window.svg":   "199 in the worst minute",
		"sliding-window.svg": "100 in the worst minute",
		"bucket.svg":         "in the worst minute",
	}
	for _, p := range pictures() {
		isDrawn(t, p.file, p.svg())
		testkit.Check(t, strings.Contains(p.svg(), want[p.file]), "%s: want %q", p.file, want[p.file])
		_, said, _ := strings.Cut(string(page), "]("+p.file+")")
		said, _, _ = strings.Cut(said, "\n\n![")
		_, most := worst(p.admitted)
		number := strconv.Itoa(most)
		testkit.Check(t, strings.Contains(said, number+" in"),
			"docs/windows.md does not say %s below %s", number, p.file)
	}
}
