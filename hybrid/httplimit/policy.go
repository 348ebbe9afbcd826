package httplimit

import (
	"fmt"
	"maps"
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// policy has the texts about one limit in answers.
type policy struct {
	limit  hybrid.Limit
	names  []string // the name, for Denial.Policies
	quoted string   // the name as a String of a structured field
	quota  int64    // tokens per window
	window int64    // in seconds
	legacy string   // quota as text, for X-RateLimit-Limit
	body   []byte   // body of a denial
}

// policies are the limits of a rule. All keys with the same limits share policies.
type policies struct {
	list   []policy
	header string // value of RateLimit-Policy, or empty
}

// policyKey identifies policies in a policyCache.
type policyKey struct {
	name   string
	limits [lease.LimitsMax]hybrid.Limit
}

// policiesMax bounds policyCache.ready, because each customer may have different limits.
const policiesMax = 1024

// policyCache caches policies. Lookups of policies in ready take no lock.
type policyCache struct {
	ready atomic.Pointer[map[policyKey]*policies]

	mu      sync.Mutex
	others  map[policyKey]*policies // policies made since ready was last replaced
	lookups int                     // failed lookups in ready since ready was last replaced
}

// policiesFor returns the policies of the rule called name for a key with these limits.
func (c *policyCache) policiesFor(name string, limits []hybrid.Limit, status int) *policies {
	key := policyKey{name: name}
	copy(key.limits[:], limits)
	if ready := c.ready.Load(); ready != nil {
		if p, ok := (*ready)[key]; ok {
			return p
		}
	}
	return c.findOrMake(key, limits, status)
}

// findOrMake is policiesFor for a key that ready lacks. After more failed lookups than ready has entries,
// findOrMake replaces ready by the entries of ready and others: on average a lookup copies one entry. If
// there would be more than policiesMax entries, findOrMake drops those of ready.
func (c *policyCache) findOrMake(key policyKey, limits []hybrid.Limit, status int) *policies {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ready map[policyKey]*policies
	if have := c.ready.Load(); have != nil {
		ready = *have
	}
	if p, ok := ready[key]; ok {
		return p // a concurrent lookup has replaced ready
	}
	p := c.others[key]
	if p == nil {
		p = newPolicies(key.name, limits, status)
		if c.others == nil {
			c.others = map[policyKey]*policies{}
		}
		c.others[key] = p
	}
	if c.lookups++; c.lookups > len(ready) {
		more := c.others
		if len(ready)+len(more) <= policiesMax {
			maps.Copy(more, ready)
		}
		c.ready.Store(&more)
		c.others, c.lookups = nil, 0
	}
	return p
}

func newPolicies(name string, limits []hybrid.Limit, status int) *policies {
	ps := &policies{}
	var headers []string
	for _, limit := range limits {
		p := policy{limit: limit}
		full := name
		if len(limits) > 1 {
			full = strings.TrimSpace(name + " " + limit.String())
		}
		full = printable(full)
		p.names = []string{full}
		p.quoted = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(full) + `"`
		p.quota, p.window = promise(limit)
		p.legacy = strconv.FormatInt(p.quota, 10)
		p.body = problem(status, problemType+"quota-exceeded", quotaExceeded, p.names)
		ps.list = append(ps.list, p)
		if !limit.Equal(hybrid.Unlimited) {
			headers = append(headers, fmt.Sprintf("%s;q=%d;w=%d", p.quoted, p.quota, p.window))
		}
	}
	ps.header = strings.Join(headers, ", ")
	return ps
}

// find returns the policy of a limit; nil if there is none.
func (ps *policies) find(limit hybrid.Limit) *policy {
	for i := range ps.list {
		if ps.list[i].limit == limit {
			return &ps.list[i]
		}
	}
	return nil
}

// integerMax is the largest Integer of a structured field.
const integerMax = 999_999_999_999_999

// promise returns q and w of RateLimit-Policy: a client that is alone with the key can take quota tokens in
// any window seconds. For a token bucket, quota is the burst and window the time in which the burst fills.
// For a sliding window or a calendar, quota is the number of tokens and window the length. If window is one
// second, quota is at least the number of tokens per second.
func promise(l hybrid.Limit) (quota, window int64) {
	if l.Equal(hybrid.Blocked) {
		return 0, 1
	}
	quota, window = l.Capacity(), seconds(l.TimeToFull())
	if l.Windowed() {
		window = seconds(l.Per)
	}
	if window <= 1 {
		quota, window = max(quota, perSecond(l)), 1
	}
	return min(quota, integerMax), min(window, integerMax)
}

// perSecond returns the number of whole tokens that l adds in a second.
func perSecond(l hybrid.Limit) int64 {
	high, low := bits.Mul64(uint64(l.Tokens), uint64(time.Second))
	if high >= uint64(l.Per) {
		return integerMax
	}
	n, _ := bits.Div64(high, low, uint64(l.Per))
	return int64(min(n, integerMax))
}

// seconds returns d in seconds, rounded up; 0 if d is negative.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// printable percent-encodes the characters that a String of a structured field (RFC 9651) cannot have.
func printable(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// The fields of an answer, in the canonical form of http.Header.
const (
	fieldPolicy          = "Ratelimit-Policy"
	fieldLimit           = "Ratelimit"
	fieldRetryAfter      = "Retry-After"
	fieldRetryAfterMs    = "Retry-After-Ms"
	fieldLegacyLimit     = "X-Ratelimit-Limit"
	fieldLegacyRemaining = "X-Ratelimit-Remaining"
	fieldLegacyReset     = "X-Ratelimit-Reset"
	fieldContentType     = "Content-Type"
)

// values stores three field values, and the bytes of two of them, in one allocation instead of five.
type values struct {
	list [3]string
	n    uint8
	end  uint8
	text [62]byte
}

// room returns an empty slice to which the caller appends the next value, for put.
func (v *values) room() []byte { return v.text[v.end:v.end] }

// put adds text, which the caller has appended to room, as the next value. The caller must not change text.
func (v *values) put(text []byte) []string {
	if len(text) <= len(v.text)-int(v.end) { // text is still in v.text: append has not reallocated it
		v.end += uint8(len(text))
	}
	return v.add(unsafe.String(unsafe.SliceData(text), len(text)))
}

// add adds text as the next value. Answers do not share slices, because handlers may change them.
func (v *values) add(text string) []string {
	v.list[v.n] = text
	v.n++
	return v.list[v.n-1 : v.n : v.n]
}

// setState sets the fields about the limits ps and about r, a decision by the limit p. wait is the value of
// Retry-After in a denial.
func (s *settings) setState(h http.Header, ps *policies, p *policy, r *hybrid.Result, wait time.Duration) {
	left := min(max(r.Remaining, 0), p.quota)
	reset := wait
	switch {
	case !r.OK:
	case left > 0 || p.limit.Windowed(): // a window gains tokens only when earlier use leaves the window
		reset = r.ResetAfter
	default:
		reset = (p.limit.Per-1)/time.Duration(p.limit.Tokens) + 1 // the longest time until the next token
	}
	v := new(values)
	if s.fields&FieldsDraft != 0 {
		if ps.header != "" {
			add(h, fieldPolicy, v.add(ps.header))
		}
		text := append(append(v.room(), p.quoted...), ";r="...)
		text = strconv.AppendInt(text, left, 10)
		if reset > 0 { // reset is 0 if no token is missing, or for Blocked
			text = strconv.AppendInt(append(text, ";t="...), min(seconds(reset), integerMax), 10)
		}
		add(h, fieldLimit, v.put(text))
	}
	if wait > 0 {
		h[fieldRetryAfter] = v.put(strconv.AppendInt(v.room(), seconds(wait), 10))
	}
	if s.fields&FieldsLegacy != 0 {
		h[fieldLegacyLimit] = []string{p.legacy}
		h[fieldLegacyRemaining] = []string{strconv.FormatInt(left, 10)}
		if reset > 0 || r.OK {
			at := time.Now().Add(reset + time.Second - 1).Unix()
			h[fieldLegacyReset] = []string{strconv.FormatInt(at, 10)}
		}
	}
}

func (s *settings) setPolicy(h http.Header, ps *policies) {
	if s.fields&FieldsDraft != 0 && ps.header != "" {
		add(h, fieldPolicy, []string{ps.header})
	}
}

// add sets a field, or appends to the value that an outer handler has set.
func add(h http.Header, field string, value []string) {
	if have := h[field]; len(have) > 0 {
		value = append(slices.Clip(have), value...)
	}
	h[field] = value
}

// RemoveFields removes the fields about limits, except Retry-After, from the answer of another server.
// RemoveFields is the ModifyResponse of a httputil.ReverseProxy in a Middleware. Without it, answers would
// have the fields of both servers. RemoveFields always returns nil.
func RemoveFields(answer *http.Response) error {
	for _, f := range []string{
		fieldPolicy, fieldLimit, fieldLegacyLimit, fieldLegacyRemaining, fieldLegacyReset,
	} {
		answer.Header.Del(f)
	}
	return nil
}

func setRetryAfter(h http.Header, d time.Duration) {
	h[fieldRetryAfter] = []string{strconv.FormatInt(seconds(d), 10)}
}
