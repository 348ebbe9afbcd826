package house

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// coldMost bounds the files of hybrid, node, protocol and pool through which the first request for a
// key runs.
const coldMost = 14

func TestAColdAllowIsShort(t *testing.T) {
	// Given the coverage of one Allow of a new key, by a program of its own,
	dir := t.TempDir()
	program, text := filepath.Join(dir, "cold.exe"), filepath.Join(dir, "cold.txt") // Windows runs it
	data := filepath.Join(dir, "data")
	testkit.NoErr(t, os.Mkdir(data, 0o700))
	run := func(name string, args ...string) {
		out, err := exec.Command(name, args...).CombinedOutput()
		testkit.Must(t, err == nil, "%s %v: %v\n%s", name, args, err, out)
	}
	counted := []string{"hybrid", "internal/node", "internal/protocol", "internal/pool"}
	run("go", "build", "-cover", "-covermode=atomic", "-o", program,
		"-coverpkg=./testdata/cold,"+module+"/"+strings.Join(counted, ","+module+"/"), "./testdata/cold")
	run(program, data)
	run("go", "tool", "covdata", "textfmt", "-i", data, "-o", text)
	// then it runs through few files,
	blocks := blocksOf(t, text)
	var files []string
	for _, b := range blocks {
		if b.count > 0 && slices.Contains(counted, path.Dir(b.file)) && !slices.Contains(files, b.file) {
			files = append(files, b.file)
		}
	}
	slices.Sort(files)
	t.Logf("%d files: %v", len(files), files)
	testkit.Check(t, len(files) > 5 && len(files) <= coldMost, "through %d files, must be at most %d:\n%s",
		len(files), coldMost, strings.Join(files, "\n"))
	// and hashes the key once.
	hashes, places := 0, 0
	for _, name := range files {
		source, err := os.ReadFile(path.Join("../..", name))
		testkit.NoErr(t, err)
		for i, line := range strings.Split(string(source), "\n") {
			if !strings.Contains(line, "maphash.String(") {
				continue
			}
			for _, b := range blocks {
				if b.file == name && b.from <= i+1 && i+1 <= b.to {
					hashes += b.count
					places++
				}
			}
		}
	}
	testkit.Check(t, hashes == 1 && places > 0, "the key is hashed %d times, in %d places", hashes, places)
}

// block is some lines of a file, and how often they ran.
type block struct {
	file     string
	from, to int
	count    int
}

var blockLine = regexp.MustCompile(`^` + module + `/(.*\.go):(\d+)\.\d+,(\d+)\.\d+ \d+ (\d+)$`)

func blocksOf(t *testing.T, file string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(file)
	testkit.NoErr(t, err)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if m := blockLine.FindStringSubmatch(lines.Text()); m != nil {
			n := make([]int, 3)
			for i := range n {
				n[i], err = strconv.Atoi(m[2+i])
				testkit.NoErr(t, err)
			}
			all = append(all, block{m[1], n[0], n[1], n[2]})
		}
	}
	testkit.Must(t, len(all) > 0, "%s names no block", file)
	return all
}
