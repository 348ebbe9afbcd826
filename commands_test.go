package yuzhi_test

import (
	"bytes"
	"context"
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
	"syscall"
	"testing"
	"time"

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
	why      string
}

type treatment int

const (
	inCI       treatment = iota
	inAll                // with .ci/commands --all
	background           // to the end of its page
	never                // but what it names must exist
	noCommand
)

// rules are tried in order. A command that none of them is about runs in CI, if it is a line of a
// block; in a sentence it names a test or a figure's command, of which CI runs the tests anyway.
var rules = []rule{
	{"admitted(t, t+w]", noCommand, "the promise"},
	{"go get github.com/yuzhi-go/yuzhi", never, "changes the go.mod of whoever runs it"},
	{".ci/servers PATH...", never, "PATH stands for servers that the reader has; .ci/run runs it on the distribution's"},
	{"make MALLOC=libc", never, "builds servers from sources that are elsewhere"},
	{"go test ./...", inAll, "all tests, which CI runs with the race detector"},
	{"go test ./internal/faults", inAll, "part of the above"},
	{"-sim.requests", inAll, "100 million requests: a minute"},
	{"-sim.scenarios", inAll, "10,000 scenarios: the better part of an hour"},
	{"-bench", inAll, "measures for minutes"},
}

// treat is what becomes of a command.
func treat(c command) treatment {
	for _, r := range rules {
		if strings.Contains(c.text, r.contains) {
			return r.how
		}
	}
	if c.inline {
		return inAll
	}
	return inCI
}

// TestCommandsOfThePages: each command in the README, the pages below docs and examples, CHANGELOG
// and SECURITY has the flags and files that it names, and runs as it is written. Without -commands
// nothing is run.
func TestCommandsOfThePages(t *testing.T) {
	pages := map[string][]command{}
	used := map[string]bool{}
	for file, text := range readRepository(t).texts {
		// The specification has formulas where other pages have commands.
		if path.Ext(file) == ".md" && file != "docs/protocol.md" {
			pages[file] = commandsOf(file, text)
		}
	}
	leasesim := filepath.Join(t.TempDir(), "leasesim")
	build := exec.Command("go", "build", "-o", leasesim, "./sim/cmd/leasesim")
	out, err := build.CombinedOutput()
	testkit.Must(t, err == nil, "%v: %s", err, out)

	for _, page := range slices.Sorted(maps.Keys(pages)) {
		for _, c := range pages[page] {
			for _, r := range rules {
				used[r.contains] = used[r.contains] || strings.Contains(c.text, r.contains)
			}
			for _, complaint := range exists(c, leasesim) {
				t.Errorf("%s:%d: %s: %s", c.page, c.line, c.text, complaint)
			}
		}
	}
	for _, r := range rules {
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
	if treat(c) == noCommand || strings.Contains(c.text, "curl ") {
		return complaints // the path is a URL's
	}
	for _, m := range fileArgument.FindAllStringSubmatch(c.text, -1) {
		_, here := os.Stat(strings.TrimSuffix(m[1], "/..."))
		_, there := os.Stat(path.Join(path.Dir(c.page), strings.TrimSuffix(m[1], "/...")))
		if here != nil && there != nil && !strings.HasPrefix(m[1], "github.com/") {
			complaints = append(complaints, "there is no file "+m[1])
		}
	}
	return complaints
}

// runPage runs the commands of a page one after the other, as one shell would, from the root of the
// repository or, below examples, from the page's folder.
func runPage(t *testing.T, page string, commands []command, bin string) {
	var script strings.Builder
	n := 0
	for _, c := range commands {
		how := treat(c)
		if how == noCommand || how == never || how == inAll && *runCommands != "all" {
			continue
		}
		n++
		text := c.text
		if regexp.MustCompile(`^[A-Z]+ `).MatchString(text) { // a command of Redis, typed at its prompt
			text = "redis-cli -e <<'END'\n" + text + "\nEND"
		}
		if how == background {
			text = "(" + text + ") &"
		}
		fmt.Fprintf(&script, "echo \"$(date +%%T)  %s:%d\"\n%s\n", c.page, c.line, text)
	}
	if n == 0 {
		t.SkipNow()
	}
	shell := exec.Command("bash", "-euo", "pipefail", "-c", script.String())
	if strings.HasPrefix(page, "examples/") {
		shell.Dir = path.Dir(page)
	}
	// curl waits for the servers of the page.
	home := t.TempDir()
	testkit.NoErr(t, os.WriteFile(filepath.Join(home, ".curlrc"), []byte("retry = 60\nretry-connrefused\nretry-delay = 1\n"), 0o600))
	shell.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "CURL_HOME="+home)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log := filepath.Join(home, "log")
	file, err := os.Create(log)
	testkit.NoErr(t, err)
	defer file.Close()
	shell.Stdout, shell.Stderr = file, file // a file, so that Wait does not wait for the servers
	begin := time.Now()
	testkit.NoErr(t, shell.Start())
	err = shell.Wait()
	syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) // the page's servers
	out, _ := os.ReadFile(log)
	vain := bytes.Contains(out, []byte("[no tests to run]"))
	if err != nil || vain {
		t.Fatalf("%v: the last command of\n%s", err, out[max(0, len(out)-8000):])
	}
	t.Logf("%d commands in %v\n%s", n, time.Since(begin).Round(time.Second),
		strings.Join(regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  .*$`).FindAllString(string(out), -1), "\n"))
}

// startRedis has a server at localhost:6379, which is where the pages expect one.
func startRedis(t *testing.T) {
	ping := func() bool {
		out, _ := exec.Command("redis-cli", "ping").Output()
		return strings.TrimSpace(string(out)) == "PONG"
	}
	if ping() {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "redis-server", "--save", "", "--dir", t.TempDir(), "--bind", "127.0.0.1")
	testkit.NoErr(t, cmd.Start())
	t.Cleanup(func() { stop(); _ = cmd.Wait() })
	testkit.Eventually(t, "PONG", ping)
}
