package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestThePicturesShowWhatTheLimitsDo: the pictures in docs/ are those that the program draws now,
// and the page says the numbers that are in them.
func TestThePicturesShowWhatTheLimitsDo(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "windows.md"))
	testkit.NoErr(t, err)
	want := map[string]string{
		"fixed-window.svg":   "199 in the worst minute",
		"sliding-window.svg": "100 in the worst minute",
		"bucket.svg":         "in the worst minute",
	}
	for _, p := range pictures() {
		drawn, err := os.ReadFile(filepath.Join("..", p.file))
		testkit.NoErr(t, err)
		testkit.Check(t, string(drawn) == p.svg(), "docs/%s is old: go run ./docs/pictures", p.file)
		testkit.Check(t, strings.Contains(p.svg(), want[p.file]), "%s: want %q", p.file, want[p.file])
		_, said, _ := strings.Cut(string(page), "]("+p.file+")")
		said, _, _ = strings.Cut(said, "\n\n![")
		_, most := worst(p.admitted)
		number := strconv.Itoa(most)
		testkit.Check(t, strings.Contains(said, number+" in"), "docs/windows.md does not say %s below %s", number, p.file)
	}
}
