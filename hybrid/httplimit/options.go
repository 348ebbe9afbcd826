package httplimit

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Option is a setting of Middleware, Select or RoundTripper.
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
	pauseOn []int

	made policyCache // shared by all handlers, as some routers make one for each request
}

// Also adds a limit, to at most 16 in total, in any order. A request takes its tokens from all limits or from
// none; see hybrid.Limiter.Join. Nothing is taken if a KeyFunc fails. RateLimit-Policy names all limits to
// the client.
func Also(limiter *hybrid.Limiter, key KeyFunc) Option {
	return func(s *settings) { s.also = append(s.also, Rule{Limiter: limiter, Key: key}) }
}

// Cost sets the number of tokens that a request takes; 1 without it. 0 takes none. A request is never served
// if its cost is above the burst, or negative, as a Request.ContentLength of unknown length is. OnError or
// WriteError answers it, without Retry-After.
func Cost(cost func(*http.Request) int64) Option { return func(s *settings) { s.cost = cost } }

// Skip reports which requests are not limited.
func Skip(skip func(*http.Request) bool) Option { return func(s *settings) { s.skip = skip } }

// Class returns the class of a request in hybrid.Config.Priorities; 0 without it. In other classes the
// answer has no RateLimit-Policy, because only class 0 can use all of a burst.
func Class(class func(*http.Request) int) Option { return func(s *settings) { s.class = class } }

// Wait makes a request that would be denied wait for its tokens, for at most d. If the tokens cannot come in
// time, it is denied at once. Without Wait, a RoundTripper waits until the request's context ends.
func Wait(d time.Duration) Option { return func(s *settings) { s.wait = d } }

// PauseOn adds statuses, such as 403 or 529, to 429 and 503, with which an answer that has Retry-After makes
// the requests of a RoundTripper pause.
func PauseOn(statuses ...int) Option {
	return func(s *settings) { s.pauseOn = append(s.pauseOn, statuses...) }
}

// OnLimit answers requests above a limit, for example by a page. The fields are set before the call and
// may be changed; answer writes the status.
func OnLimit(answer func(http.ResponseWriter, *http.Request, Denial)) Option {
	return func(s *settings) { s.onLimit = answer }
}

// OnError answers undecided requests. Their error wraps ErrNoKey if there is no key, hybrid.ErrExceedsBurst,
// ErrInvalidN or ErrInvalidKey if they are never served, or another error of package hybrid if a limiter
// failed. Without OnError, WriteError answers. To serve the request without a limit, answer writes nothing
// and returns true. Otherwise it writes the whole answer, or calls WriteError. A request that is never
// served, or whose context has ended, stays refused.
func OnError(answer func(http.ResponseWriter, *http.Request, error) (admit bool)) Option {
	return func(s *settings) { s.onError = answer }
}

// Status sets the status of the answer to a request above a limit, 200 to 999; 429 without it.
func Status(code int) Option { return func(s *settings) { s.status = code } }

// FieldSet selects the fields of an answer about limits. Combine sets with |.
type FieldSet int

// The sets of fields. Each includes Retry-After.
const (
	// FieldsNone has only Retry-After.
	FieldsNone FieldSet = 0
	// FieldsDraft, the default, has RateLimit-Policy, with all limits, and RateLimit, with the limit that
	// binds, as in draft-ietf-httpapi-ratelimit-headers-10.
	FieldsDraft FieldSet = 1
	// FieldsLegacy has X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset of the limit that
	// binds. The last is a time in seconds since 1970.
	FieldsLegacy FieldSet = 2
)

// Fields sets the fields of an answer about limits; FieldsDraft without it.
func Fields(set FieldSet) Option { return func(s *settings) { s.fields = set } }

func newSettings(options []Option) *settings {
	s := &settings{status: http.StatusTooManyRequests, fields: FieldsDraft,
		pauseOn: []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}}
	for _, o := range options {
		o(s)
	}
	if s.onError == nil {
		s.onError = WriteError
	}
	if s.status < 200 || s.status > 999 {
		panic(fmt.Sprintf("httplimit: Status is %d, must be 200 to 999", s.status))
	}
	return s
}

// rulesMax bounds the keys of a hybrid.Limiter.Join.
const rulesMax = 16

// rulesOf returns the rules of a Middleware or RoundTripper. A number distinguishes rules of equal names.
func (s *settings) rulesOf(limiter *hybrid.Limiter, key KeyFunc) []Rule {
	rules := append([]Rule{{Limiter: limiter, Key: key}}, s.also...)
	if len(rules) > rulesMax {
		panic(fmt.Sprintf("httplimit: there are %d limits, must be at most %d", len(rules), rulesMax))
	}
	var names []string
	for i := range rules {
		rule := &rules[i]
		if rule.Limiter == nil || rule.Key == nil {
			panic("httplimit: limiter or KeyFunc is nil")
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

// inClass returns the rules in the class of the request.
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
