package redisbucket

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var sources embed.FS

// script is one Lua script as Redis knows it.
type script struct {
	source string
	sha    string
}

// newScript is the script of the given name, with what the scripts share around it.
func newScript(name string) *script {
	var parts []string
	for _, part := range []string{"common", "open", name, "close"} {
		source, _ := sources.ReadFile(part + ".lua") // all are embedded
		parts = append(parts, string(source))
	}
	return scriptOf(strings.Join(parts, "\n"))
}

func scriptOf(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// Scripts returns the sources of the scripts that a Store runs, by name. Where an operator has
// loaded them on every master and replica, again after every restart, a user needs no permission
// for EVAL, only for EVALSHA.
func Scripts() map[string]string {
	return map[string]string{
		"lease":     newScript("lease").source,
		"configure": newScript("configure").source,
	}
}

// command is a script call that go-redis does not repeat, which would draw the same lease again.
// Its cluster client would, even where MaxRetries is -1.
type command struct{ *redis.Cmd }

// NoRetry is what go-redis asks before it repeats a command or a pipeline.
func (command) NoRetry() bool { return true }

// call is the command that runs s with args, named by its hash or brought along.
func (s *script) call(ctx context.Context, bringSource bool, args []any) command {
	words := []any{"evalsha", s.sha}
	if bringSource {
		words = []any{"eval", s.source}
	}
	return command{redis.NewCmd(ctx, append(words, args...)...)}
}

// run calls s once for each of argLists in one round trip, and returns a command for each. A server
// that does not know the script (NOSCRIPT) has executed nothing. Those calls are sent once more,
// the first with the source, which the server keeps for the others: a thousand copies of it would
// be 30 MB. Where the others went to another server, each takes the source along.
func (s *script) run(ctx context.Context, rdb redis.UniversalClient, argLists [][]any) (cmds []command) {
	cmds = make([]command, len(argLists))
	for i, args := range argLists {
		cmds[i] = s.call(ctx, false, args)
	}
	// go-redis panics on a reply that announces more elements than a slice can have.
	defer func() {
		if p := recover(); p != nil {
			for i, args := range argLists {
				cmds[i] = s.call(ctx, false, args)
				cmds[i].SetErr(fmt.Errorf("%w: the client panicked: %v", ErrReply, p))
			}
		}
	}()
	send(ctx, rdb, cmds)
	for _, everyone := range []bool{false, true} {
		var again []command
		for i, c := range cmds {
			if redis.HasErrorPrefix(c.Err(), "NOSCRIPT") {
				cmds[i] = s.call(ctx, everyone || len(again) == 0, argLists[i])
				again = append(again, cmds[i])
			}
		}
		if len(again) == 0 {
			break
		}
		send(ctx, rdb, again)
	}
	return cmds
}

// send executes cmds in one round trip. Afterwards every command holds its own error.
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
