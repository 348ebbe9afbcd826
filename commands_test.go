package yuzhi_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// runCommands has TestCommandsOfThePages run the commands, in the clone that .ci/commands makes.
var runCommands = flag.String("commands", "", `which commands of the pages to run: "ci" those that take seconds, "all" also the long ones`)

// command is one that a page tells its reader to type.
type command struct {
	page   string
	line   int
	text   string
	inline bool // `in a sentence` and not a line of a block
}

// A rule says how the commands are run that contain its text.
type rule struct {
	contains string
	how      treatment
	why      string // or, of those in the background, the address that they then listen on
}

type treatment int

const (
	inCI        treatment = iota
	inAll                 // with .ci/commands --all
	background            // until the page has another one of these, or ends
	interrupted           // by Ctrl-C after some seconds, upon which it ends
	never                 // but what it names must exist
	noCommand
)

// treatments are tried in order. A command that none of them is about runs in CI, if it is a line
// of a block; in a sentence it names a test, which CI runs anyway, or the command of a figure.
var treatments = []rule{
	{"admitted(t, t+w]", noCommand, "the promise"},
	{"go get github.com/yuzhi-go/yuzhi", never, "changes the go.mod of whoever runs it"},
	{".ci/servers PATH...", never, "PATH stands for servers that the reader has; .ci/run runs it on the distribution's"},
	{"make MALLOC=libc", never, "builds servers from sources that are elsewhere"},
	{"kubectl -n yuzhi", never, "wants a cluster"},
	{"kubectl create", never, "wants a cluster"},
	{"docker build", never, "wants docker"},
	{"docker compose", never, "wants docker"},
	{"api/run", inAll, "not again: .ci/run runs it"},
	{"go run ./api serve", background, "127.0.0.1:8080"},
	{"go run ./grpc -serve", background, "localhost:50051"},
	{"go run ./llm", background, "localhost:8080"},
	{"go run ./routers", background, "localhost:8080"},
	{"go run ./worker", interrupted, "it works until then"},
	{"leasesim top", interrupted, "it goes on until then"},
	{"go test ./...", inAll, "all tests, which .ci/run runs in parts"},
	{"go test ./internal/faults", inAll, "part of the above"},
	{"groups[0].count=100000", inAll, "100,000 processes: minutes"},
	{"-sim.requests", inAll, "100 million requests: a minute"},
	{"-sim.scenarios", inAll, "10,000 scenarios: the better part of an hour"},
	{"-bench", inAll, "measures for minutes"},
}

// treat is what becomes of a command, and why.
func treat(c command) (treatment, string) {
	for _, r := range treatments {
		if strings.Contains(c.text, r.contains) {
			return r.how, r.why
		}
	}
	if c.inline {
		return inAll, ""
	}
	return inCI, ""
}

// TestCommandsOfThePages: each command in the README, the pages below docs, CHANGELOG, SECURITY and
// the comments of the examples has the flags and files that it names, and runs as it is written.
// Without -commands nothing is run.
func TestCommandsOfThePages(t *testing.T) {
	pages := map[string][]command{}
	used := map[string]bool{}
	for file, text := range readRepository(t).texts {
		switch {
		case file == "docs/protocol.md": // has formulas where other pages have commands
		case path.Ext(file) == ".md":
			pages[file] = commandsOf(file, text)
		case strings.HasPrefix(file, "examples/") && path.Base(file) == "main.go":
			pages[file] = commandsOfComment(file, text)
		}
	}
	leasesim := filepath.Join(t.TempDir(), "leasesim")
	build := exec.Command("go", "build", "-o", leasesim, "./sim/cmd/leasesim")
	out, err := build.CombinedOutput()
	testkit.Must(t, err == nil, "%v: %s", err, out)

	for _, page := range slices.Sorted(maps.Keys(pages)) {
		for _, c := range pages[page] {
			for _, r := range treatments {
				used[r.contains] = used[r.contains] || strings.Contains(c.text, r.contains)
			}
			for _, complaint := range exists(c, leasesim) {
				t.Errorf("%s:%d: %s: %s", c.page, c.line, c.text, complaint)
			}
		}
	}
	for _, r := range treatments {
		testkit.Check(t, used[r.contains], "no page has a command with %q: drop the rule", r.contains)
	}
	if *runCommands == "" || t.Failed() {
		return
	}
	startRedis(t)
	ran := map[string]bool{}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		commands := slices.DeleteFunc(pages[page], func(c command) bool { return ran[c.text] })
		t.Run(page, func(t *testing.T) { runPage(t, page, commands, filepath.Dir(leasesim)) })
		for _, c := range commands {
			ran[c.text] = true
		}
	}
}

// TestCommandsAreChecked: a wrong flag, a wrong file and a word that is no command are noticed.
func TestCommandsAreChecked(t *testing.T) {
	page := strings.Join([]string{
		"Text with `go test -run X ./lease`, `leasesim live`, `leasesim run", "-f a.yaml` and `Allow`.", "",
		"    go vet ./... # a remark", "    one \\", "      two", "", "- a list", "  that goes on", "", "```sh", "three", "```",
		"```go", "four()", "```", "```text", "five", "```",
	}, "\n")
	var have []string
	for _, c := range commandsOf("x.md", page) {
		have = append(have, fmt.Sprint(c.line, " ", c.text))
	}
	want := []string{"4 go vet ./... # a remark", "5 one two", "12 three", "1 go test -run X ./lease", "1 leasesim run -f a.yaml"}
	testkit.Check(t, slices.Equal(have, want), "the commands are %q, want %q", have, want)

	leasesim := filepath.Join(t.TempDir(), "leasesim")
	testkit.NoErr(t, os.WriteFile(leasesim, []byte("#!/bin/sh\n[ $1 = run ] && echo '  -f, --file FILE   --seed'\n"), 0o700))
	for text, wrong := range map[string]bool{
		"leasesim run -f example:x --seed 1":        false,
		"go run ./sim/cmd/leasesim run --file a":    false,
		"leasesim run --sed 1":                      true,
		"leasesim rum -f example:x":                 true,
		"leasesim run -f sim/nothing.yaml":          true,
		"kubectl apply -f docs/":                    false,
		"kubectl apply -f docs/deployment.yaml":     true,
		"curl localhost:8080/nothing/here":          false,
		"prometheus --config.file docs/figures.yml": true,
	} {
		got := exists(command{page: "docs/x.md", text: text}, leasesim)
		testkit.Check(t, (len(got) > 0) == wrong, "%s: %v", text, got)
	}
}

var (
	inlineCode    = regexp.MustCompile("`([^`]+)`")
	inlineCommand = regexp.MustCompile(`^(?:\w+=\S+ )*(?:go (?:test|run|doc|vet|build) |leasesim \w+ |\.ci/|redis-cli |curl |make |docker |kubectl )`)
)

// commandsOf finds the commands of a page: the lines of its indented blocks and of those fenced as
// sh, and then what is `in a sentence` and begins like one.
func commandsOf(page, text string) (all []command) {
	lines := strings.Split(text, "\n")
	fence, list := "", false
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		indented := strings.HasPrefix(line, "    ")
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			if fence != "" {
				fence = ""
			} else {
				fence = strings.TrimSpace(line)
			}
			lines[i] = ""
			continue
		case fence == "" && !indented && line != "":
			list = strings.HasPrefix(strings.TrimSpace(line), "- ") || list && strings.HasPrefix(line, " ")
		}
		if fence == "```sh" || fence == "" && indented && !list {
			from := i
			joined := strings.TrimSpace(line)
			for strings.HasSuffix(joined, `\`) && i+1 < len(lines) {
				lines[i] = ""
				i++
				joined = strings.TrimSpace(strings.TrimSuffix(joined, `\`)) + " " + strings.TrimSpace(lines[i])
			}
			if joined != "" && !strings.HasPrefix(joined, "#") {
				all = append(all, command{page: page, line: from + 1, text: joined})
			}
			lines[i] = ""
		} else if fence != "" {
			lines[i] = ""
		}
	}
	sentences := strings.Join(lines, "\n")
	for _, m := range inlineCode.FindAllStringSubmatchIndex(sentences, -1) {
		code := strings.Join(strings.Fields(sentences[m[2]:m[3]]), " ")
		if inlineCommand.MatchString(code+" ") && !regexp.MustCompile(`^leasesim \w+$`).MatchString(code) {
			line := strings.Count(sentences[:m[0]], "\n") + 1
			all = append(all, command{page: page, line: line, text: code, inline: true})
		}
	}
	return all
}

// commandsOfComment finds the commands of a program's package comment: its indented lines.
func commandsOfComment(file, source string) []command {
	comment, _, _ := strings.Cut(source, "\npackage ")
	lines := strings.Split(comment, "\n")
	for i, line := range lines {
		text, indented := strings.CutPrefix(line, "//\t")
		lines[i] = map[bool]string{true: "    " + text}[indented]
	}
	return commandsOf(file, strings.Join(lines, "\n"))
}

var (
	leasesimCommand = regexp.MustCompile(`(?:^|\s)(?:leasesim|go run \./sim/cmd/leasesim) (\w+)([^|;>#]*)`)
	flagWord        = regexp.MustCompile(`(?:^|\s)(--?[a-z][\w-]*)`)
	fileArgument    = regexp.MustCompile(`(?:^|[\s=])((?:\.\./|\./)?[\w-]+(?:/[\w.-]*)+)`)
)

// exists says what a command names that is not there: flags of leasesim, and files. (Packages and
// tests are what TestCitationsExist looks at.)
func exists(c command, leasesim string) (complaints []string) {
	for _, m := range leasesimCommand.FindAllStringSubmatch(c.text, -1) {
		help, err := exec.Command(leasesim, m[1], "--help").CombinedOutput()
		if err != nil {
			return append(complaints, "there is no command "+m[1])
		}
		for _, f := range flagWord.FindAllStringSubmatch(m[2], -1) {
			if !regexp.MustCompile(`(?m)(?:^|[\s,])` + f[1] + `\b`).Match(help) {
				complaints = append(complaints, "there is no flag "+f[1])
			}
		}
	}
	if how, _ := treat(c); how == noCommand || strings.Contains(c.text, "curl ") {
		return complaints // the path is a URL's
	}
	for _, m := range fileArgument.FindAllStringSubmatch(c.text, -1) {
		_, here := os.Stat(strings.TrimSuffix(m[1], "/..."))
		_, there := os.Stat(path.Join("examples", strings.TrimSuffix(m[1], "/...")))
		if here != nil && (there != nil || !strings.HasPrefix(c.page, "examples/")) && !strings.HasPrefix(m[1], "github.com/") {
			complaints = append(complaints, "there is no file "+m[1])
		}
	}
	return complaints
}
