package redisbucket

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var sources embed.FS

// script is one Lua script as Redis knows it.
type script struct {
	source  string
	sha     string
	shaWord any // sha, as a word of a command
}

var evalsha any = "evalsha"

// newScript is the script of the given name, with what the scripts share around it.
func newScript(name string) *script {
	var parts []string
	names := []string{"common", "open", name, "close"}
	if name == "lease" {
		names = append([]string{"draw"}, names...)
	}
	for _, part := range names {
		source, _ := sources.ReadFile(part + ".lua") // all are embedded
		parts = append(parts, string(source))
	}
	return scriptOf(strings.Join(parts, "\n"))
}

func scriptOf(source string) *script {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	return &script{source: source, sha: sha, shaWord: sha}
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

// Of a call's words the first key is here, after EVALSHA, the hash, and the number of keys.
const firstKey = 3

// words appends the words of a call of s with its arguments: the number of keys, the keys, then the
// script's ARGV, whose third is a *payload.
func (s *script) words(dst []any, args ...any) []any {
	return append(append(dst, evalsha, s.shaWord), args...)
}

// payloadOf is the payload among the words of a call, if there is one.
func payloadOf(words []any) *payload {
	p, _ := words[firstKey+words[firstKey-1].(int)+2].(*payload)
	return p
}

// bringing are words for a server that may not know s: they bring the source along.
func (s *script) bringing(words []any) []any {
	words = slices.Clone(words)
	words[0], words[1] = "eval", s.source
	return words
}

// run sends each of calls, the words of calls of s, in one round trip, and returns a command for
// each. A server that does not know the script (NOSCRIPT) has executed nothing. Those calls are
// sent once more, the first with the source, which the server keeps for the others: a thousand
// copies of it would be 30 MB. Where the others went to another server, each brings the source.
func (s *script) run(ctx context.Context, rdb redis.UniversalClient, calls [][]any) (cmds []command) {
	cmds = make([]command, len(calls))
	for i, words := range calls {
		cmds[i] = command{redis.NewCmd(ctx, words...)}
	}
	// go-redis panics on a reply that announces more elements than a slice can have.
	defer func() {
		if p := recover(); p != nil {
			for i, words := range calls {
				cmds[i] = command{redis.NewCmd(ctx, words...)}
				cmds[i].SetErr(fmt.Errorf("%w: the client panicked: %v", ErrReply, p))
			}
		}
	}()
	send(ctx, rdb, cmds)
	for _, everyone := range []bool{false, true} {
		var again []command
		for i, c := range cmds {
			if err := c.Err(); err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
				continue
			}
			words := calls[i]
			if everyone || len(again) == 0 {
				words = s.bringing(words)
			}
			cmds[i] = command{redis.NewCmd(ctx, words...)}
			again = append(again, cmds[i])
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
