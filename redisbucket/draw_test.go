package redisbucket

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// drawOf returns a draw of n tokens of a limit of 10 a second.
func drawOf(seq, n int64) lease.Request {
	r := request(seq)
	r.Draw, r.Want, r.Waiting = true, n, n
	r.Config = lease.Policy{TTL: r.Config.TTL}.ConfigFor([]lease.Limit{lease.PerSecond(10)}, 0, 0)
	return r
}

// lastingConfig refills so slowly that nothing expires, and no level changes, in a test.
var lastingConfig = lease.Policy{}.ConfigFor([]lease.Limit{{Tokens: 10, Per: time.Hour}}, 0, 0)

// raw returns the reply of the lease script to r, as the server sent it.
func raw(t *testing.T, s *Store, key string, r *lease.Request) any {
	t.Helper()
	config, err := appendConfig(nil, &r.Config)
	testkit.NoErr(t, err)
	bucket := s.bucketKey(key)
	v, err := s.rdb.Eval(context.Background(), s.leaseScript.source,
		[]string{bucket, recordKey(bucket, r.Holder)}, config, s.now(), appendRequest(nil, r)).Result()
	testkit.NoErr(t, err)
	return v
}

// TestTheFastPathAnswersDrawsOfABucketAtRest, and nothing else; TestScriptsAgreeWithReference
// compares what it does.
func TestTheFastPathAnswersDrawsOfABucketAtRest(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Start(t).Addr)
	s.rdb.(*redis.Client).AddHook(keepKeys{s.rdb.(*redis.Client)})
	now := int64(1_700_000_000_000_000)
	s.now = func() string { return strconv.FormatInt(now, 10) }
	seq := int64(0)
	answers := func(name string, fast bool, change func(*lease.Request)) {
		t.Helper()
		seq++
		r := drawOf(seq, 1)
		r.Config.TTL = briefTTL
		change(&r)
		text, _ := raw(t, s, "k", &r).(string)
		is := len(text) == drawReply
		testkit.Check(t, is == fast, "%s: the fast path answers: %v, want %v", name, is, fast)
	}
	same := func(*lease.Request) {}
	answers("the first draw makes the bucket", true, same)
	answers("the next", true, same)
	now += 1_000_000
	answers("one that refills", true, func(r *lease.Request) { r.Denied = 3 })
	answers("one with headroom", false, func(r *lease.Request) { r.Headroom = 0.1 })
	answers("one after that, in the short form again", true, same)
	s.rdb.Del(context.Background(), s.bucketKey("k"))
	window := func(r *lease.Request) { r.Config.Limits = []lease.Limit{lease.Sliding(10, time.Second)} }
	answers("the first draw of a window", false, window)
	answers("the next of it", false, window)
	s.rdb.Del(context.Background(), s.bucketKey("k"))
	answers("a bucket again", true, same)
	answers("one with a debt has a record", false, func(r *lease.Request) {
		r.Late = oneLate(lease.LateDebt, 1)
	})
	answers("beside that record", false, same)
	now += 2_000_000
	answers("which has ended", false, same)
	answers("so that all is short again", true, same)
	now += 4_000_000
	answers("another T", false, func(r *lease.Request) { r.Config.TTL *= 2 })
	now += 4_000_000
	answers("the old T once more", false, same)
	now += 4_000_000
	answers("which comes into force", false, same)
	answers("and all is short", true, same)
	now -= 10_000_000
	answers("the clock steps back", false, same)
	testkit.Check(t, len(contentsOf(s, "k")) > 200, "after a step back the running time is not the clock")
}

// contentsOf returns the text of the bucket of key.
func contentsOf(s *Store, key string) string {
	text, form, err := ofLayout(s.rdb.Get(context.Background(), s.bucketKey(key)).Val())
	if err != nil {
		return ""
	}
	return string(form) + text
}

// TestAKeyAtRestIsSmall: users without a lease, of a limiter with a name, cost at most 250 bytes each. That
// includes the tables of keys and of expiries, whose entries Debian's jemalloc rounds up to 16 bytes. MEMORY
// USAGE, which leaves these tables out, says what each form is.
func TestAKeyAtRestIsSmall(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newStore(t, redistest.Start(t).Addr)
	used := func() int64 {
		n, err := strconv.ParseInt(info(t, s, "memory", "used_memory"), 10, 64)
		testkit.NoErr(t, err)
		return n
	}
	granted(t, s, "first", drawOf(1, 1))
	// The server's tables grow at 16,384 and 32,768 keys.
	users := testkit.ShortOrLong(t, 15_000, 30_000, "users")
	draw := func(first int) {
		for from := first; from < first+users; from += 100 {
			var calls []*lease.Call
			for i := range 100 {
				r := drawOf(1, 1)
				r.Config = lastingConfig
				calls = append(calls, &lease.Call{Key: fmt.Sprint("@api:user:", from+i), Request: r})
			}
			s.Exchange(ctx, calls, func([]*lease.Call) {})
		}
	}
	draw(10_000) // the server's own buffers grow once
	before := used()
	for range 2 { // with the second round the server's tables have grown to the end
		draw(10_000 + users)
	}
	keys := int(s.rdb.DBSize(ctx).Val()) - 1
	testkit.Must(t, keys == 2*users, "%d keys for %d users", keys, 2*users)
	each, most := float64(used()-before)/float64(users), 250.0
	if !strings.HasPrefix(info(t, s, "memory", "mem_allocator"), "jemalloc") {
		most = 288 // other allocators round up further
	}
	t.Logf("%.0f bytes a user", each)
	testkit.Check(t, each <= most, "%.0f bytes a user, must be at most %.0f", each, most)

	granted(t, s, "leased", request(1))
	for key, most := range map[string]int64{"first": 176, "leased": 448} {
		n, err := s.rdb.MemoryUsage(ctx, s.bucketKey(key)).Result()
		testkit.Check(t, err == nil && n <= most, "%s: %d bytes, must be at most %d: %v", key, n, most, err)
		t.Logf("%s: %d bytes", key, n)
	}
}

// narrow returns sc as a 32-bit server runs it: its struct cuts whole numbers to 32 bits.
func narrow(sc *script) *script {
	const cut = `
local function narrow(struct)
  local function cut(form, numbers)
    local k = 0
    for kind in string.gmatch(form, '[Idc]') do
      k = k + 1
      if kind == 'I' then numbers[k] = numbers[k] % 2^32 end
    end
    return unpack(numbers)
  end
  return {
    pack = function(form, ...) return struct.pack(form, cut(form, {...})) end,
    unpack = function(form, ...) return cut(form, {struct.unpack(form, ...)}) end,
  }
end
`
	return scriptOf(cut + strings.ReplaceAll(sc.source, "rawget(_G, 'struct')", "narrow(rawget(_G, 'struct'))"))
}

// TestAServerOf32BitsStoresTheSame: it cannot use its struct, which would take each draw to come
// years after the one before, when the bucket is full again.
func TestAServerOf32BitsStoresTheSame(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr
	now := int64(1_700_000_000_000_000)
	wide, thin := newStore(t, addr), newStore(t, addr)
	wide.found.Store(foundEnough)
	thin.found.Store(foundEnough)
	thin.prefix, thin.leaseScript, thin.drawsScript = "thin:", narrow(thin.leaseScript), narrow(thin.drawsScript)
	for _, s := range []*Store{wide, thin} {
		s.now = func() string { return strconv.FormatInt(now, 10) }
	}
	for seq := int64(1); seq <= 20; seq++ {
		calls := map[*Store][]*lease.Call{}
		for _, s := range []*Store{wide, thin} {
			calls[s] = drawing(seq, 1, "a", "b")
			for _, c := range calls[s] {
				c.Request.Config, c.Request.Draw = drawOf(seq, 1).Config, seq%8 > 0
			}
			exchangeAll(s, calls[s])
		}
		for i, c := range calls[wide] {
			d := calls[thin][i]
			testkit.Must(t, c.Err == nil && d.Err == nil && c.Grant.Granted == d.Grant.Granted,
				"call %d: %+v, %v; %+v, %v", seq, c.Grant, c.Err, d.Grant, d.Err)
			testkit.Must(t, contentsOf(wide, c.Key) == contentsOf(thin, c.Key), "call %d: %x instead of %x",
				seq, contentsOf(thin, c.Key), contentsOf(wide, c.Key))
		}
		now += 70_000
	}
}
