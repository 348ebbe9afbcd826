package yuzhi_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

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
	ctx, stop := context.WithTimeout(t.Context(), map[string]time.Duration{"ci": 5 * time.Minute, "all": 2 * time.Hour}[*runCommands])
	defer stop()
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", prelude+script.String())
	shell.WaitDelay = time.Second // for what it has started
	if strings.HasPrefix(page, "examples/") {
		shell.Dir = "examples"
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
		cmd := exec.CommandContext(ctx, "redis-server", "--save", "", "--dir", t.TempDir(), "--bind", "127.0.0.1")
		testkit.NoErr(t, cmd.Start())
		t.Cleanup(func() { stop(); _ = cmd.Wait() })
		testkit.Eventually(t, "PONG", func() bool { return client.Ping(ctx).Err() == nil })
	}
	store, err := redisbucket.New(client, redisbucket.Config{})
	testkit.NoErr(t, err)
	limiter := newLimiter(t, store, hybrid.Config{Name: "login", Limits: []hybrid.Limit{hybrid.PerHour(100)}})
	testkit.Must(t, limiter.AllowN("17", 100), "the server does not serve a limiter")
}
