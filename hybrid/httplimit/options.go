package httplimit

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Option is a setting of Handler, Select or RoundTripper. What it does not set has its default.
type Option func(*settings)

type settings struct {
	also    []Rule
	cost    func(*http.Request) int64
	skip    func(*http.Request) bool
	class   func(*http.Request) int
	wait    time.Duration
	onLimit func(http.ResponseWriter, *http.Request, Denial)
	onError func(http.ResponseWriter, *http.Request, error) bool
	status  int
	fields  FieldSet

	made policyCache // of all handlers, as some routers wrap theirs anew for each request
}

// Also adds a limit, to at most 16 together. A request takes its tokens from all or from none; see
// hybrid.Limiter.Join.
func Also(limiter *hybrid.Limiter, key KeyFunc) Option {
	return func(s *settings) { s.also = append(s.also, Rule{Limiter: limiter, Key: key}) }
}

// Cost says how many tokens a request asks for; 1 without it. With 0 it takes nothing. Below 0, as
// Request.ContentLength is where nobody knows it, it is an error of the limiter, of which an
// OnError may make an answer, and should not make an admission: it wraps hybrid.ErrInvalidN.
func Cost(cost func(*http.Request) int64) Option { return func(s *settings) { s.cost = cost } }

// Skip says which requests are not limited.
func Skip(skip func(*http.Request) bool) Option { return func(s *settings) { s.skip = skip } }

// Class says in which class of hybrid.Config.Priorities a request is; 0 without it. In another
// class the answer has no RateLimit-Policy, because only class 0 can have all of a burst.
func Class(class func(*http.Request) int) Option { return func(s *settings) { s.class = class } }

// Wait has a request wait for its tokens, for at most d, instead of being denied at once. Where
// they cannot be there by then it is denied at once. A RoundTripper without it waits for as long as
// the request's context allows.
func Wait(d time.Duration) Option { return func(s *settings) { s.wait = d } }

// OnLimit answers requests above a limit, for example by a page. The fields are set before and may
// be changed; the status is still to be written.
func OnLimit(answer func(http.ResponseWriter, *http.Request, Denial)) Option {
	return func(s *settings) { s.onLimit = answer }
}

// OnError answers requests that nobody has decided about: those without a key, whose error wraps
// ErrNoKey, and those of a limiter that fails, with an error of package hybrid; without it they
// are answered with 400 and 503. Where it reports true it has written nothing, and the request is
// served without a limit, unless its context has ended: who goes away is not to be served for that.
func OnError(answer func(http.ResponseWriter, *http.Request, error) (admit bool)) Option {
	return func(s *settings) { s.onError = answer }
}

// Status is the status of the answer to a request above a limit, in place of 429.
func Status(code int) Option { return func(s *settings) { s.status = code } }

// FieldSet says which fields of an answer tell of limits. Sets are combined by |.
type FieldSet int

// The sets of fields. Retry-After is in each.
const (
	// FieldsNone is no field that tells of limits.
	FieldsNone FieldSet = 0
	// FieldsDraft is RateLimit-Policy, with all limits, and RateLimit, with the one that binds, as
	// in draft-ietf-httpapi-ratelimit-headers-10. It is the default.
	FieldsDraft FieldSet = 1
	// FieldsLegacy is X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, of the limit
	// that binds. The last is a time in seconds since 1970.
	FieldsLegacy FieldSet = 2
)

// Fields says which fields of an answer tell of limits.
func Fields(set FieldSet) Option { return func(s *settings) { s.fields = set } }

func newSettings(options []Option) *settings {
	s := &settings{status: http.StatusTooManyRequests, fields: FieldsDraft}
	for _, o := range options {
		o(s)
	}
	if s.status < 200 || s.status > 999 {
		panic(fmt.Sprintf("httplimit: Status is %d, must be 200 to 999", s.status))
	}
	return s
}

// rulesMax is how many keys a hybrid.Limiter.Join takes.
const rulesMax = 16

// rulesOf are the rules of a Handler or RoundTripper. Those that would have the same name are told
// apart by a number.
func (s *settings) rulesOf(limiter *hybrid.Limiter, key KeyFunc) []Rule {
	rules := append([]Rule{{Limiter: limiter, Key: key}}, s.also...)
	if len(rules) > rulesMax {
		panic(fmt.Sprintf("httplimit: there are %d limits, must be at most %d", len(rules), rulesMax))
	}
	var names []string
	for i := range rules {
		rule := &rules[i]
		if rule.Limiter == nil || rule.Key == nil {
			panic("httplimit: a limiter and a KeyFunc must be given")
		}
		rule.Name = nameOf(rule.Limiter)
		for n := 2; slices.Contains(names, rule.Name); n++ {
			rule.Name = fmt.Sprintf("%s-%d", nameOf(rule.Limiter), n)
		}
		names = append(names, rule.Name)
	}
	return rules
}

func (s *settings) costOf(r *http.Request) int64 {
	if s.cost == nil {
		return 1
	}
	return s.cost(r)
}

// inClass are the rules in the class of the request.
func (s *settings) inClass(rules []Rule, r *http.Request) []Rule {
	if s.class == nil {
		return rules
	}
	class := s.class(r)
	if class <= 0 {
		return rules
	}
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].Class = class
	}
	return rules
}
