package redisbucket

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

//go:embed *.lua
var sources embed.FS

type script struct {
	source  string
	sha     string
	shaWord any // sha as an argument of a command
}

// newScript joins the files of the script with the given name.
func newScript(name string) *script {
	source := func(part string) string {
		text, _ := sources.ReadFile(part + ".lua") // all files are embedded
		return string(text)
	}
	parts := []string{
		"local function windowRules(struct)\nlocal encode, decode = struct.pack, struct.unpack",
		source("sliding"), source("calendar"), source("window"), "return rulesOf({sliding, calendar})\nend",
	}
	for _, part := range []string{"bucket", "common", "open", "change", name, "close"} {
		parts = append(parts, source(part))
	}
	switch name {
	case "lease":
		parts = append([]string{source("draw")}, parts...)
		parts[len(parts)-2] = protocol.ForScript().Replace(source(name))
	case "draws":
		parts = []string{"local function draw(KEYS, ARGV)", source("draw"), "end", source(name)}
	}
	return scriptOf(fmt.Sprintf("local layout, oldest = %d, %d\n", layout, layoutOldest) +
		strings.Join(parts, "\n"))
}

func scriptOf(source string) *script {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	return &script{source: source, sha: sha, shaWord: sha}
}

// allScripts returns the scripts by name. A process joins the files once, because joining takes longer than a
// call.
var allScripts = sync.OnceValue(func() map[string]*script {
	return map[string]*script{
		"lease": newScript("lease"), "draws": newScript("draws"), "configure": newScript("configure"),
	}
})

// Scripts returns the sources of the scripts that a Store runs, by name. If an operator loads the scripts on
// every master and replica, again after every restart, the Store's user needs no permission for EVAL.
func Scripts() map[string]string {
	sources := make(map[string]string)
	for name, s := range allScripts() {
		sources[name] = s.source
	}
	return sources
}

// command is a script call that go-redis must not repeat, because a repeated call would draw twice. Without
// NoRetry the cluster client would repeat a call, even if MaxRetries is -1.
type command struct{ *redis.Cmd }

// NoRetry tells go-redis not to repeat the command, or a pipeline that contains the command.
func (command) NoRetry() bool { return true }

// invocation is one script with its keys and arguments. args[2] is the request, see lease.lua.
type invocation struct {
	sc   *script
	keys []any
	args []any
}

func (i *invocation) request() *payload { return i.args[2].(*payload) }

// command returns the command that sends i: EVAL with the script's source if bringSource, otherwise EVALSHA.
func (i *invocation) command(ctx context.Context, bringSource bool) command {
	words := make([]any, 0, 3+len(i.keys)+len(i.args))
	if bringSource {
		words = append(words, "eval", i.sc.source)
	} else {
		words = append(words, "evalsha", i.sc.shaWord)
	}
	words = append(append(append(words, len(i.keys)), i.keys...), i.args...)
	return command{redis.NewCmd(ctx, words...)}
}

// invoke sends all invocations in one round trip and returns a command for each. If a server does not know a
// script (NOSCRIPT), invoke sends the refused commands again, but only the first with the source: a thousand
// copies would be 30 MB. A command that another server then refuses is sent with the source too.
func invoke(
	ctx context.Context, rdb redis.UniversalClient, all []*invocation, refused func(),
) (cmds []command) {
	cmds = make([]command, len(all))
	for i, one := range all {
		cmds[i] = one.command(ctx, false)
	}
	// go-redis panics on a reply that announces more elements than a slice can have.
	defer func() {
		if p := recover(); p != nil {
			for i, one := range all {
				cmds[i] = one.command(ctx, false)
				cmds[i].SetErr(fmt.Errorf("%w: the client panicked: %v", ErrReply, p))
			}
		}
	}()
	send(ctx, rdb, cmds)
	for _, everyone := range []bool{false, true} {
		var again []command
		var brought []*script
		for i, c := range cmds {
			if err := c.Err(); err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
				continue
			}
			first := !slices.Contains(brought, all[i].sc)
			if first {
				brought = append(brought, all[i].sc)
			}
			cmds[i] = all[i].command(ctx, first || everyone)
			again = append(again, cmds[i])
		}
		if len(again) == 0 {
			break
		}
		refused()
		send(ctx, rdb, again)
	}
	return cmds
}

func send(ctx context.Context, rdb redis.UniversalClient, cmds []command) {
	if len(cmds) == 1 {
		_ = rdb.Process(ctx, cmds[0])
		return
	}
	pipe := rdb.Pipeline()
	for _, c := range cmds {
		_ = pipe.Process(ctx, c)
	}
	_, _ = pipe.Exec(ctx)
}
