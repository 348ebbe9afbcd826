package docs

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
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// runCommands has TestCommandsOfThePages run the commands, in the clone that .ci/commands makes.
var runCommands = flag.String("commands", "",
	`which commands of the pages to run: "ci" those that take seconds, "all" also the long ones`)

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
	{".ci/servers PATH...", never, "PATH stands for servers that the reader has"},
	{"kubectl -n yuzhi", never, "wants a cluster"},
	{"kubectl create", never, "wants a cluster"},
	{"docker build", never, "wants docker"},
	{"docker compose", never, "wants docker"},
	{"api/run", inAll, "not again: .ci/full runs it"},
	{"go run ./admin", background, "127.0.0.1:8088"},
	{"go run ./api", background, "127.0.0.1:8080"},
	{"go run ./envoy", background, "localhost:8080"},
	{"go run ./grpc -serve", background, "localhost:50051"},
	{"go run ./llm", background, "localhost:8080"},
	{"go run ./mcp", background, "localhost:8080"},
	{"go run ./money", background, "localhost:8080"},
	{"go run ./routers", background, "localhost:8080"},
	{"go run ./worker", interrupted, "it works until then"},
	{"leasesim ui", interrupted, "it serves the page until then"},
	{"compare --live", inAll, "fails where the machine is busy: it is to agree with reality to 1 %"},
	{"go test ./...", inAll, "all tests, which .ci/run and .ci/full run"},
	{"YUZHI_LONG=1 go test", inAll, "part of the tests at full length, which .ci/full runs"},
	{"-sim.requests", inAll, "100 million requests: a minute"},
	{"-sim.scenarios", inAll, "10,000 scenarios: the better part of an hour"},
	{"-bench", inAll, "measures for minutes"},
	{"internal/evaluation", inAll, "measures for minutes"},
}

// treat returns how a command is run, and why.
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
	for file, text := range read(t).texts {
		switch {
		case file == "docs/protocol.md": // has formulas where other pages have commands
		case path.Ext(file) == ".md":
			pages[file] = commandsOf(file, text)
		case strings.HasPrefix(file, "examples/") && path.Base(file) == "main.go":
			pages[file] = commandsOfComment(file, text)
		}
	}
	leasesim := filepath.Join(t.TempDir(), "leasesim"+exe)
	build := exec.Command("go", "build", "-o", leasesim, "./sim/cmd/leasesim")
	build.Dir = root
	out, err := build.CombinedOutput()
	testkit.Must(t, err == nil, "%v: %s", err, out)
	helps := map[string]string{}
	help := func(of string) string {
		if _, known := helps[of]; !known {
			text, _ := exec.Command(leasesim, of, "--help").Output()
			helps[of] = string(text)
		}
		return helps[of]
	}

	for _, page := range slices.Sorted(maps.Keys(pages)) {
		for _, c := range pages[page] {
			for _, r := range treatments {
				used[r.contains] = used[r.contains] || strings.Contains(c.text, r.contains)
			}
			for _, complaint := range missing(c, help) {
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

var inlineCommand = regexp.MustCompile(`^(?:\w+=\S+ )*` +
	`(?:go (?:test|run|doc|vet|build) |leasesim \w+ \S|\.ci/|redis-cli |curl |make |docker |kubectl )`)

// commandsOf finds the commands of a page: the lines of its indented blocks and of those fenced as
// sh, and then each code span that begins like a command.
func commandsOf(page, text string) (all []command) {
	// A fenced block goes, but for the lines of a shell's, which get a tab.
	text = fencedBlock.ReplaceAllStringFunc(text, func(block string) string {
		shell, is := strings.CutPrefix(strings.TrimSpace(block), "```sh")
		if !is {
			return strings.Repeat("\n", strings.Count(block, "\n"))
		}
		return strings.ReplaceAll(strings.TrimSuffix(shell, "```"), "\n", "\n\t")
	})
	lines := strings.Split(text, "\n")
	list := false
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		shell, indented := strings.HasPrefix(line, "\t"), strings.HasPrefix(line, "    ")
		if !shell && (list || !indented) {
			list = listItem.MatchString(line) || list && (line == "" || line[0] == ' ')
			continue
		}
		c := command{page: page, line: i + 1, text: strings.TrimSpace(line)}
		for lines[i] = ""; strings.HasSuffix(c.text, `\`) && i+1 < len(lines); lines[i] = "" {
			i++
			c.text = strings.TrimSuffix(c.text, `\`) + strings.TrimSpace(lines[i])
		}
		if c.text != "" && c.text[0] != '#' {
			all = append(all, c)
		}
	}
	sentences := strings.Join(lines, "\n")
	for _, m := range codeSpan.FindAllStringSubmatchIndex(sentences, -1) {
		code := strings.Join(strings.Fields(sentences[m[2]:m[3]]), " ")
		if inlineCommand.MatchString(code) {
			all = append(all, command{page, strings.Count(sentences[:m[0]], "\n") + 1, code, true})
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
	leasesimCommand = regexp.MustCompile(
		`(?:^|\s)(?:leasesim|go run (?:-C \.\. )?\./sim/cmd/leasesim) (\w+)([^|;>#]*)`)
	listItem     = regexp.MustCompile(`^\s*(?:-|\d+\.) `)
	flagWord     = regexp.MustCompile(`(?:^|\s)(--?[a-z][\w-]*)`)
	fileArgument = regexp.MustCompile(`(?:^|[\s=])((?:\.\./|\./)?[\w-]+(?:/[\w.-]*)+)`)
)

// missing names the flags of leasesim and the files that c names and that are not there. help is
// the help of a command of leasesim, empty where there is no such command. (TestCitationsExist looks
// at packages and tests.)
func missing(c command, help func(string) string) (complaints []string) {
	for _, m := range leasesimCommand.FindAllStringSubmatch(c.text, -1) {
		for _, f := range flagWord.FindAllStringSubmatch(m[2]+" --help", -1) {
			if !regexp.MustCompile(`(?m)(?:^|[\s,])` + f[1] + `\b`).MatchString(help(m[1])) {
				complaints = append(complaints, "leasesim "+m[1]+" has no flag "+f[1])
			}
		}
	}
	if how, _ := treat(c); how == noCommand || strings.Contains(c.text, "curl ") {
		return complaints // the path is a URL's
	}
	for _, m := range fileArgument.FindAllStringSubmatch(c.text, -1) {
		_, err := os.Stat(path.Join(root, strings.TrimSuffix(m[1], "/...")))
		if err != nil && strings.HasPrefix(c.page, "examples/") {
			_, err = os.Stat(path.Join(root, "examples", m[1]))
		}
		if err != nil && !strings.HasPrefix(m[1], "github.com/") {
			complaints = append(complaints, "there is no file "+m[1])
		}
	}
	return complaints
}

// prelude has start, which runs a command in the background until it listens on an address, after
// stopping the one before.
const prelude = `
started=
stop() { [ -z "$started" ] || { kill -- "-$started" && wait "$started"; } 2>/dev/null || true; started=; }
trap stop EXIT
start() {
  stop
  set -m; bash -c "$2" & started=$!; set +m
  until (exec 3<>"/dev/tcp/${1/://}") 2>/dev/null; do kill -0 "$started"; sleep 0.1; done
}
`

// quoted is text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// runPage runs the commands of a page one after the other, as one shell would, from the root of the
// repository, or from examples, where that is a module of its own.
func runPage(t *testing.T, page string, commands []command, bin string) {
	var script strings.Builder
	n := 0
	for _, c := range commands {
		how, address := treat(c)
		if how == noCommand || how == never || how == inAll && *runCommands != "all" {
			continue
		}
		n++
		text := c.text
		if regexp.MustCompile(`^[A-Z]+ `).MatchString(text) { // a command of Redis, typed at its prompt
			text = "redis-cli -e <<'END'\n" + text + "\nEND"
		}
		if how == interrupted {
			text = "timeout --signal=INT --kill-after=20s 10s bash -c " + quoted(text) + " || [ $? = 124 ]"
		}
		if how == background {
			text = fmt.Sprintf("start %s %s", address, quoted(text))
		}
		fmt.Fprintf(&script, "echo \"$(date +%%T)  %s:%d\"\n%s\n", c.page, c.line, text)
	}
	if n == 0 {
		t.SkipNow()
	}
	patience := map[string]time.Duration{"ci": 5 * time.Minute, "all": 2 * time.Hour}[*runCommands]
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", prelude+script.String())
	shell.WaitDelay = time.Second // for what it has started
	shell.Dir = root
	if strings.HasPrefix(page, "examples/") {
		shell.Dir = path.Join(root, "examples")
	}
	shell.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	begin := time.Now()
	out, err := shell.CombinedOutput()
	vain := bytes.Contains(out, []byte("[no tests to run]"))
	if err != nil || vain {
		t.Fatalf("%v: the last command of\n%s", err, out[max(0, len(out)-8000):])
	}
	t.Logf("%d commands in %v\n%s", n, time.Since(begin).Round(time.Second),
		strings.Join(regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  .*$`).FindAllString(string(out), -1), "\n"))
}

// startRedis has a server at localhost:6379, which is where the pages expect one, and in it the
// bucket that they look at.
func startRedis(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	t.Cleanup(func() { client.Close() })
	if client.Ping(t.Context()).Err() != nil {
		ctx, stop := context.WithCancel(context.Background())
		options := []string{"--save", "", "--dir", t.TempDir(), "--bind", "127.0.0.1"}
		cmd := exec.CommandContext(ctx, "redis-server", options...)
		testkit.NoErr(t, cmd.Start())
		t.Cleanup(func() { stop(); _ = cmd.Wait() })
		testkit.Eventually(t, "PONG", func() bool { return client.Ping(ctx).Err() == nil })
	}
	store, err := redisbucket.New(client, redisbucket.Config{})
	testkit.NoErr(t, err)
	limiter, err := hybrid.New(store, hybrid.Config{
		Name: "login", Limits: []hybrid.Limit{hybrid.PerHour(100)}, CallTimeout: time.Minute,
	})
	testkit.NoErr(t, err)
	t.Cleanup(func() { limiter.Close() })
	testkit.Must(t, limiter.AllowN("17", 100), "the server does not serve a limiter")
}
