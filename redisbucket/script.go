package redisbucket

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed common.lua
	commonSource string
	//go:embed open.lua
	openSource string
	//go:embed close.lua
	closeSource string
	//go:embed lease.lua
	leaseSource string
	//go:embed configure.lua
	configureSource string
)

// script is one Lua script as Redis knows it.
type script struct {
	source string
	sha    string
}

// newScript puts what the scripts share around body.
func newScript(body string) *script {
	return scriptOf(commonSource + "\n" + openSource + "\n" + body + "\n" + closeSource)
}

// Scripts are the sources of the scripts that a Store runs, by name. A server on which an operator
// has loaded them (SCRIPT LOAD, again after every restart, on every master and replica) needs to
// allow EVALSHA only, not EVAL.
func Scripts() map[string]string {
	return map[string]string{"lease": newScript(leaseSource).source, "configure": newScript(configureSource).source}
}

func scriptOf(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// command is a script call that go-redis never sends twice on its own: its default retries would draw the same
// lease up to four times, and the cluster client retries even where MaxRetries is -1.
type command struct {
	*redis.Cmd
}

// NoRetry is what go-redis asks before it repeats a command or a pipeline.
func (command) NoRetry() bool { return true }

// bySHA and bySource are the two ways to call s; args are everything after the script.
func (s *script) bySHA(ctx context.Context, args []any) command {
	return s.command(ctx, "evalsha", s.sha, args)
}

func (s *script) bySource(ctx context.Context, args []any) command {
	return s.command(ctx, "eval", s.source, args)
}

func (s *script) command(ctx context.Context, verb, what string, args []any) command {
	all := make([]any, 0, len(args)+2)
	return command{redis.NewCmd(ctx, append(append(all, verb, what), args...)...)}
}

// run sends one call of s for each of argLists as one pipeline and returns one command for each. Where the server
// does not know the script (NOSCRIPT: it was restarted, flushed, or is new), it has executed nothing, and
// exactly those calls are sent once more, with the same arguments: the first with the source, which the server keeps
// for the others (a thousand copies of it would be 30 MB). Where the others went to another server, all take it along.
func (s *script) run(ctx context.Context, rdb redis.UniversalClient, argLists [][]any) []command {
	cmds := make([]command, len(argLists))
	for i, args := range argLists {
		cmds[i] = s.bySHA(ctx, args)
	}
	send(ctx, rdb, cmds)
	for _, everyone := range []bool{false, true} {
		var again []command
		var at []int
		for i := range cmds {
			if !redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
				continue
			}
			if everyone || len(again) == 0 {
				again = append(again, s.bySource(ctx, argLists[i]))
			} else {
				again = append(again, s.bySHA(ctx, argLists[i]))
			}
			at = append(at, i)
		}
		if len(again) == 0 {
			break
		}
		send(ctx, rdb, again)
		for j, i := range at {
			cmds[i] = again[j]
		}
	}
	return cmds
}

// send executes cmds in one round trip; every command holds its own error afterwards.
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
