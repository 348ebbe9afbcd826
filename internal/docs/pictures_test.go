package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

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

// TestThePicturesShowWhatTheLimitsDo: the pictures in docs/, which are kept as they were once drawn, and their
// page say how many the limits admit in the worst minute.
func TestThePicturesShowWhatTheLimitsDo(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		testkit.NoErr(t, err)
		return string(text)
	}
	page := read("windows.md")
	for _, p := range pictures() {
		_, most := worst(p.admitted)
		title := fmt.Sprintf("<title>%s admits %d in the worst minute</title>", p.title, most)
		testkit.Check(t, strings.Contains(read(p.file), title), "docs/%s: no %q", p.file, title)
		_, said, _ := strings.Cut(page, "]("+p.file+")")
		said, _, _ = strings.Cut(said, "\n\n![")
		testkit.Check(t, strings.Contains(said, fmt.Sprint(most)+" in"),
			"docs/windows.md does not say %d below %s", most, p.file)
	}
}
