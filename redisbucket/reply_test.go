package redisbucket

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Places in a reply of lease.lua for one limit.
var (
	replySeq, replyGranted, replyFlags  = place{0, 7}, place{7, 7}, place{14, 1}
	replyDelay, replyEpoch, replyActive = place{15, 7}, place{29, 7}, place{42, 7}
	replyExpiry, replyLeaseMax          = place{49, 7}, place{56, 7}
	replyFrozen, replyRunning           = place{63, 7}, place{70, 7}
	replyClock, replyLedger             = place{77, 7}, place{84, 7}
	replyTarget, replyTTL, replyNext    = place{91, 7}, place{98, 4}, place{110, 7}
)

const replyLevel = 102

// grantReply returns a good answer of lease.lua, with changes.
func grantReply(changes ...change) string {
	b := appendWhole(appendWholes(nil, 7, 7, 5), 1, 2+4)
	b = appendWhole(appendWholes(b, 7, 1000, 0, 11), 6, 3)
	b = appendWholes(b, 7, 2, 1_800_000, 457_000, 20_000, 1_700_000_000_000_001, 1_700_000_000_000_000, 60, 150_000)
	b = append(appendWhole(b, 4, 400_000), doubles(40)...)
	return changed(0, changes...)(string(appendWhole(b, 7, 7000)))
}

// stateLevel is where the level is in stateReply.
const stateLevel = 12

// stateReply returns a good answer of configure.lua.
func stateReply(t testing.TB) []any {
	return []any{"ok", int64(1), int64(0), int64(60), int64(2), int64(11), int64(3), int64(5), int64(7),
		int64(1_700_000_000_000_000), int64(400_000),
		textOf(t, request(1).Config), int64(40), int64(10_000)}
}

func TestGrantIsRead(t *testing.T) {
	r := request(7)
	r.Waiting, r.Config.TTL = 2, briefTTL
	g, err := decodeGrant(grantReply(), &r)
	want := lease.Grant{
		Status: lease.Status{Config: r.Config, Epoch: 11, Counter: 3, Ledger: 60, ActiveWeight: 2,
			Levels: [lease.LimitsMax]int64{40}, Next: [lease.LimitsMax]time.Duration{7 * time.Millisecond},
			ServerTime: 1_700_000_000_000_000},
		Seq: 7, Granted: 5, Waited: 2, Delay: time.Millisecond,
		Contended: true, Expiry: 1800 * time.Millisecond,
		LeaseMax: 457 * time.Millisecond, Frozen: 20 * time.Millisecond,
		Running: 1_700_000_000_000_001, Target: 150 * time.Millisecond,
	}
	testkit.Check(t, err == nil && reflect.DeepEqual(g, want), "%+v, %v\nwant %+v", g, err, want)
}

// TestForeignRepliesAreErrors: whatever stands where a reply should be, the answer is a typed error
// and no grant.
func TestForeignRepliesAreErrors(t *testing.T) {
	r := request(7)
	r.Need = 4
	good := grantReply()
	state := stateReply(t)
	replies := []any{nil, "OK", "", int64(1), []any{}, []any{nil}, []any{"ok"}, map[any]any{}, true, 1.5,
		[]any{[]any{"ok"}}, []any{"hello"}, append(slices.Clone(state), int64(1)), good + "x", good[:len(good)-1],
		good + textOf(t, request(1).Config)[1:],
		grantReply(replyGranted.to(3)),                                   // below Need
		grantReply(replyLeaseMax.to(4e9), replyTTL.to(3_600_000_001)),    // a T above an hour
		grantReply(replyFlags.to(0)), grantReply(replyFlags.to(2 + 4*2)), // no level, and two
	}
	for i := range state {
		for _, v := range []any{nil, "x", int64(-1), int64(math.MinInt64), int64(math.MaxInt64), 1.5, []any{}} {
			odd := slices.Clone(state)
			odd[i] = v
			if i != stateLevel || v != int64(-1) { // a charge may be owed
				replies = append(replies, odd)
			}
		}
		replies = append(replies, state[:i])
	}
	for p, v := range map[place]int64{replySeq: 6, replyGranted: 11, replyFlags: 20, replyDelay: 1<<53 + 1,
		replyEpoch: 0, replyActive: 0, replyExpiry: 0, replyLeaseMax: 399_999, replyFrozen: 7_200_000_001,
		replyRunning: 1 << 52, replyClock: 1 << 52, replyLedger: 1<<53 + 1, replyTarget: 0, replyTTL: 0,
		replyNext: 1<<53 + 1} {
		replies = append(replies, grantReply(p.to(v)))
	}
	replies = append(replies, grantReply(replyLeaseMax.to(7_200_000_001)), grantReply(replyEpoch.to(1<<52)))
	for _, bad := range append(notWhole, 101, -1<<53-2) {
		if bad != -1<<53 {
			replies = append(replies, double(replyLevel, bad)(good))
		}
	}
	for _, v := range replies {
		g, err := decodeGrant(v, &r)
		testkit.Check(t, errors.Is(err, ErrReply) && reflect.ValueOf(g).IsZero(), "%v: %+v, %v", v, g, err)
		wrapped := wrap("k", err)
		checkError(t, fmt.Sprint(v), wrapped, map[error]bool{lease.ErrUnavailable: true, lease.ErrRefused: false})
		_, err = decodeState(v)
		testkit.Check(t, err != nil, "%v was taken for a state", v)
	}
}

func TestConfigTextSurvivesTheWire(t *testing.T) {
	for _, c := range []lease.Config{
		request(1).Config,
		{Limits: []lease.Limit{{Tokens: 3, Per: 7 * time.Microsecond, Burst: 9},
			lease.Every(30 * 24 * time.Hour), {Tokens: 5, Per: time.Second, Burst: 5}},
			Overcommit: 4, TTL: time.Hour, Target: time.Second, StartEmpty: true,
			Version: lease.Version{Deploy: 1 << 51, Revision: 3}, CallsPerSecond: 1_000_000_000},
		{Limits: []lease.Limit{lease.Blocked}, TTL: time.Second, Target: time.Millisecond},
		{Limits: []lease.Limit{lease.Unlimited}, TTL: time.Second, Target: time.Millisecond},
		{Limits: []lease.Limit{{Tokens: 9e17, Per: 300 * 24 * time.Hour, Burst: 5}}, TTL: time.Second,
			Target: time.Millisecond},
		{Limits: []lease.Limit{lease.PerSecond(1_000_000_000)}, TTL: 2 * time.Microsecond,
			Target: time.Microsecond},
	} {
		text := []byte(textOf(t, c))
		got, _, err := parseConfig(string(text), c.TTL)
		testkit.Check(t, err == nil && reflect.DeepEqual(got, c), "%q: %+v, %v", text, got, err)
		// and no text that differs is taken
		for i := range text {
			for _, b := range []byte("0\x00\x01\x7f\xff") {
				bad := slices.Clone(text)
				bad[i] = b
				checkParse(t, string(bad))
			}
		}
	}
}

// checkParse fails the test if text is taken for a configuration that is written otherwise.
func checkParse(t *testing.T, text string) {
	t.Helper()
	if c, on, err := parseConfig(text, time.Hour); err == nil {
		again, err := appendConfig(nil, &c)
		testkit.Check(t, err == nil && suspended(string(again), on) == text, "%q became %q, %v", text, again, err)
	}
}

// checkGrant fails t unless the bucket could have answered g to r. Only through these fields can a
// broken or hostile peer make tokens.
func checkGrant(t *testing.T, r *lease.Request, g lease.Grant) {
	t.Helper()
	const most = 1 << 53
	testkit.Must(t, g.Seq == r.Seq && g.Granted >= 0 && g.Granted <= r.Want &&
		(g.Granted == 0 || g.Granted >= r.Need) && g.Waited == min(g.Granted, r.Waiting) &&
		g.Delay >= 0 && g.RetryAfter >= 0 && g.Expiry > 0 &&
		g.Epoch >= 1 && g.Epoch <= lease.WaitingMax && g.Counter >= 0 && g.Counter <= lease.WaitingMax &&
		g.Ledger >= 0 && g.Ledger <= most && g.ActiveWeight >= 1 && g.ActiveWeight <= most &&
		g.ServerTime >= 0 && g.ServerTime <= lease.WaitingMax && g.Running >= 0 && g.Running <= lease.WaitingMax &&
		g.Config.TTL > 0 && g.Config.TTL <= time.Hour && g.LeaseMax >= g.Config.TTL && g.LeaseMax <= 2*time.Hour,
		"taken: %+v", g)
	checkLevels(t, g.Config, g.Levels)
}

func checkLevels(t *testing.T, c lease.Config, levels [lease.LimitsMax]int64) {
	t.Helper()
	whole := c
	whole.Target = c.Target.Truncate(time.Microsecond)
	whole.TTL = max(c.TTL, 2*whole.Target) // a T in force may be shorter until it has grown
	err := whole.Validate()
	testkit.Must(t, err == nil, "a configuration was taken that cannot be used: %v", err)
	for k, n := range levels {
		room := int64(0)
		if k < len(c.Limits) {
			room = c.Limits[k].Capacity()
		}
		testkit.Must(t, n >= -wholeMax && n <= room, "level %d is %d: %+v", k, n, c)
	}
}

// announces finds lengths of a million and more.
var announces = regexp.MustCompile(`[*$%~>|!=][+]?[0-9]{7}`)

// onTheWire returns items as a server sends them.
func onTheWire(items []any) []string {
	words := []string{fmt.Sprintf("*%d\r\n", len(items))}
	if len(items) == 1 {
		words = nil
	}
	for _, item := range items {
		if n, ok := item.(int64); ok {
			words = append(words, fmt.Sprintf(":%d\r\n", n))
		} else {
			words = append(words, fmt.Sprintf("$%d\r\n%s\r\n", len(item.(string)), item))
		}
	}
	return words
}

// FuzzWire: whatever bytes stand where a reply should be, read by go-redis, nothing but a grant or
// a state that the bucket could have given is taken, and everything else is a typed error without
// one. Nothing panics and nothing hangs.
//
//	go test ./redisbucket -run '^$' -fuzz FuzzWire
func FuzzWire(f *testing.F) {
	for _, s := range []string{
		"", "\r\n", "+OK\r\n", "-ERR x\r\n", "-NOSCRIPT x\r\n", "-MOVED 1 127.0.0.1:1\r\n", ":5\r\n",
		"$-1\r\n", "$5\r\nab", "*-1\r\n", "*2\r\n$2\r\nok\r\n", "*99999\r\n", "$99999\r\n", "_\r\n", ",nan\r\n",
		"(123456789012345678901234567890\r\n", "%1\r\n+a\r\n:1\r\n", "~1\r\n+ok\r\n", "#t\r\n",
		">2\r\n+a\r\n+b\r\n",
		"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "*2\r\n$7\r\ndamaged\r\n$1\r\nk\r\n",
		"*1\r\n$5\r\nstale\r\n", "|1\r\n+k\r\n+v\r\n+x\r\n", "*3\r\n$2\r\nok\r\n:0\r\n:0\r\n",
	} {
		f.Add([]byte(s))
	}
	other := request(1).Config
	other.Limits[0], other.Version.Revision = lease.PerSecond(200), 1
	for _, items := range [][]any{{grantReply()}, stateReply(f), {grantReply() + textOf(f, other)}} {
		good := onTheWire(items)
		f.Add([]byte(strings.Join(good, "")))
		for i := range good {
			f.Add([]byte(strings.Join(good[:i], "")))
			// one item is another one, of every type that go-redis reads
			for _, bad := range []string{":0\r\n", ":3\r\n", ":11\r\n", ":-5\r\n", ":9007199254740993\r\n",
				":9223372036854775807\r\n", "$0\r\n\r\n", "$1\r\n5\r\n", "$-1\r\n", "_\r\n", "*0\r\n",
				"*1\r\n:5\r\n", ",1.5\r\n", "#t\r\n", "-ERR x\r\n",
				"(340282366920938463463374607431768211456\r\n", "%1\r\n+a\r\n:1\r\n"} {
				f.Add([]byte(strings.Join(good[:i], "") + bad + strings.Join(good[i+1:], "")))
			}
		}
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		if announces.Match(wire) {
			t.Skip("go-redis allocates as much as is announced")
		}
		answered := func() *Store {
			return storeOver(t, redis.NewClient(&redis.Options{
				Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 1,
				DialerRetries: 1,
				Dialer: func(context.Context, string, string) (net.Conn, error) {
					return answers(wire), nil
				},
			}))
		}
		r := request(7) // which asks for little, so that a grant that is too large is easily met
		r.Need, r.Waiting = 4, 2
		if g, err := exchange(answered(), "k", r); err == nil {
			checkGrant(t, &r, g)
		} else {
			checkTyped(t, err, g)
		}
		if st, err := answered().Inspect(t.Context(), "k"); err != nil {
			checkTyped(t, err, st)
		} else if st.Exists || st.Changed {
			checkLevels(t, st.Config, st.Levels)
			least := min(st.Ledger, st.ActiveWeight, st.Epoch, st.Counter, st.ServerTime)
			testkit.Must(t, least >= 0, "taken: %+v", st)
		}
	})
}

// checkTyped fails t unless err is one that callers know by name, and nothing came with it.
func checkTyped(t *testing.T, err error, with any) {
	t.Helper()
	sentinels := []error{lease.ErrUnavailable, lease.ErrStale, lease.ErrInvalidRequest, lease.ErrInvalidConfig}
	known := slices.ContainsFunc(sentinels, func(is error) bool { return errors.Is(err, is) })
	testkit.Must(t, known && err.Error() != "", "unknown error %v", err)
	testkit.Must(t, reflect.ValueOf(with).IsZero(), "an error came with %+v", with)
}

// answers returns a connection to a peer that refuses the handshake, as old servers do, and answers
// one script call with wire.
func answers(wire []byte) net.Conn {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		for r := bufio.NewReader(server); ; {
			command, err := proto.Read(r)
			if err != nil {
				return
			}
			if strings.Contains(strings.ToLower(command), "\nevalsha\r") {
				_, _ = server.Write(wire)
				return
			}
			_, _ = io.WriteString(server, "-ERR unknown command\r\n")
		}
	}()
	return client
}
