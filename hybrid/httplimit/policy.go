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

// policy is one limit as the fields of answers tell of it.
type policy struct {
	limit  hybrid.Limit
	names  []string // its name, as Denial.Policies
	quoted string   // its name, as a String of a structured field
	quota  int64    // so many tokens
	window int64    // can be had in so many seconds
	legacy string   // X-RateLimit-Limit
	body   []byte   // of the answer to a request that it denies
}

// policies are the limits of a rule, for keys that have the same ones.
type policies struct {
	list []policy
	told string // RateLimit-Policy; empty where there is nothing to tell
}

// policyKey is what policies are made of.
type policyKey struct {
	name   string
	limits [lease.LimitsMax]hybrid.Limit
}

// policiesMax bounds how many policies are made ready for reading, as every customer may have
// limits of its own.
const policiesMax = 1024

// policyCache keeps policies that have been made. Those that are ready are read without a lock.
type policyCache struct {
	ready atomic.Pointer[map[policyKey]*policies]

	mu     sync.Mutex
	others map[policyKey]*policies // made since
	asked  int                     // how often the ready ones were not enough
}

// of are the policies of a rule with this name whose key has these limits.
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

// find is of for policies that are not ready. It makes the others ready once it was asked for as
// many as there are, so that copying them costs each request no more than one of them does. Above
// the bound those that were ready go.
func (c *policyCache) find(key policyKey, limits []hybrid.Limit, status int) *policies {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ready map[policyKey]*policies
	if have := c.ready.Load(); have != nil {
		ready = *have
	}
	if p, ok := ready[key]; ok {
		return p // since of has looked
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
	var told []string
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
			told = append(told, fmt.Sprintf("%s;q=%d;w=%d", p.quoted, p.quota, p.window))
		}
	}
	ps.told = strings.Join(told, ", ")
	return ps
}

// find is the policy of a limit; nil where it is not among them.
func (ps *policies) find(limit hybrid.Limit) *policy {
	for i := range ps.list {
		if ps.list[i].limit == limit {
			return &ps.list[i]
		}
	}
	return nil
}

// smallest is the limit with the smallest burst; the zero Limit if there is none.
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

// promise is what RateLimit-Policy says of a limit: quota tokens can be had in any window of so
// many seconds, whatever was taken before it. The quota is the burst and the window the time in
// which it fills, in whole seconds: who never takes more in any window is never denied, if nobody
// else draws. A burst that fills within a second says little about the rate, so then the quota is
// what comes in a second. Of a window or a calendar they are its tokens and its length.
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

// perSecond is how many whole tokens l makes in a second.
func perSecond(l hybrid.Limit) int64 {
	high, low := bits.Mul64(uint64(l.Tokens), uint64(time.Second))
	if high >= uint64(l.Per) {
		return integerMax
	}
	n, _ := bits.Div64(high, low, uint64(l.Per))
	return int64(min(n, integerMax))
}

// seconds are d in whole seconds, rounded up: who waits for them has waited for d.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// printable is a name of characters that a String of a structured field may have: others become
// what they are in a URL.
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
