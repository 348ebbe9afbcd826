package httplimit

import (
	"fmt"
	"maps"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// policy is one limit in the form of the fields of answers.
type policy struct {
	limit  hybrid.Limit
	names  []string // its name, as Denial.Policies
	quoted string   // its name, as a String of a structured field
	quota  int64    // tokens available in each window
	window int64    // in seconds
	legacy string   // X-RateLimit-Limit
	body   []byte   // of the answer to a request that it denies
}

// policies are the limits of a rule, for all keys with the same limits.
type policies struct {
	list   []policy
	header string // RateLimit-Policy, or empty
}

// policyKey identifies policies.
type policyKey struct {
	name   string
	limits [lease.LimitsMax]hybrid.Limit
}

// policiesMax bounds the policies that are ready, as every customer may have other limits.
const policiesMax = 1024

// policyCache caches policies. Those that are ready are read without a lock.
type policyCache struct {
	ready atomic.Pointer[map[policyKey]*policies]

	mu     sync.Mutex
	others map[policyKey]*policies // made since then
	asked  int                     // look-ups that the ready ones did not answer
}

// of returns the policies of a rule with this name whose key has these limits.
func (c *policyCache) of(name string, limits []hybrid.Limit, status int) *policies {
	key := policyKey{name: name}
	copy(key.limits[:], limits)
	if ready := c.ready.Load(); ready != nil {
		if p, ok := (*ready)[key]; ok {
			return p
		}
	}
	return c.find(key, limits, status)
}

// find is of for policies that are not ready. It makes the others ready after as many look-ups as there
// are ready ones, so that a request copies one policy on average. Above the bound it drops the former
// ready ones.
func (c *policyCache) find(key policyKey, limits []hybrid.Limit, status int) *policies {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ready map[policyKey]*policies
	if have := c.ready.Load(); have != nil {
		ready = *have
	}
	if p, ok := ready[key]; ok {
		return p // ready since of looked
	}
	p := c.others[key]
	if p == nil {
		p = newPolicies(key.name, limits, status)
		if c.others == nil {
			c.others = map[policyKey]*policies{}
		}
		c.others[key] = p
	}
	if c.asked++; c.asked > len(ready) {
		more := c.others
		if len(ready)+len(more) <= policiesMax {
			maps.Copy(more, ready)
		}
		c.ready.Store(&more)
		c.others, c.asked = nil, 0
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

// smallest returns the limit with the smallest burst; the zero Limit if there is none.
func (ps *policies) smallest() (least hybrid.Limit) {
	for i := range ps.list {
		if l := ps.list[i].limit; i == 0 || l.Capacity() < least.Capacity() {
			least = l
		}
	}
	return least
}

// integerMax is the largest Integer of a structured field.
const integerMax = 999_999_999_999_999

// promise returns q and w of RateLimit-Policy: quota tokens are available in any window of that many
// seconds, whatever was taken before it. The quota is the burst, and the window the time in which the
// burst fills, in whole seconds: a client that is alone with the key and never takes more in a window is
// never denied. A burst that fills within a second says little about the rate, so the quota is then the
// tokens of one second. For a sliding window or a calendar they are its tokens and its length.
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

// perSecond returns the whole tokens that l makes in a second.
func perSecond(l hybrid.Limit) int64 {
	high, low := bits.Mul64(uint64(l.Tokens), uint64(time.Second))
	if high >= uint64(l.Per) {
		return integerMax
	}
	n, _ := bits.Div64(high, low, uint64(l.Per))
	return int64(min(n, integerMax))
}

// seconds rounds d up to whole seconds.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// printable escapes the characters of a name that a String of a structured field must not have, as in a
// URL.
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
