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

	made policyCache // here, not in handler, because some routers make a handler for each request
}

// Also adds a limit, to at most 16 in total. A request takes its tokens from all limits or from none; see
// hybrid.Limiter.Join. If a KeyFunc fails, the request takes no tokens.
func Also(limiter *hybrid.Limiter, key KeyFunc) Option {
	return func(s *settings) { s.also = append(s.also, Rule{Limiter: limiter, Key: key}) }
}

// Cost sets the number of tokens, 0 or more, that a request takes; 1 without Cost. A request whose cost
// exceeds the burst or is negative is never served: OnError or WriteError answers, without Retry-After.
// Request.ContentLength is negative for an unknown length.
func Cost(cost func(*http.Request) int64) Option { return func(s *settings) { s.cost = cost } }

// Skip exempts the requests for which skip returns true from all limits.
func Skip(skip func(*http.Request) bool) Option { return func(s *settings) { s.skip = skip } }

// Class sets the class of a request in hybrid.Config.Priorities; 0 without Class. Answers to classes above 0
// have no RateLimit-Policy, because only class 0 can use a whole burst.
func Class(class func(*http.Request) int) Option { return func(s *settings) { s.class = class } }

// Wait makes a request wait for its tokens, at most for d. A request whose tokens would come later is denied
// at once. Without Wait, a RoundTripper waits until the request's context ends.
func Wait(d time.Duration) Option { return func(s *settings) { s.wait = d } }

// PauseOn adds statuses, such as 403 or 529, to 429 and 503: a RoundTripper pauses its requests after an
// answer with one of these statuses and Retry-After.
func PauseOn(statuses ...int) Option {
	return func(s *settings) { s.pauseOn = append(s.pauseOn, statuses...) }
}

// OnLimit makes answer respond to denied requests, for example with a page. Before the call of answer, the
// header has its fields about the limit. answer may change the header, and writes the status.
func OnLimit(answer func(http.ResponseWriter, *http.Request, Denial)) Option {
	return func(s *settings) { s.onLimit = answer }
}

// OnError makes answer respond to undecided requests; WriteError responds without OnError. The error wraps
// ErrNoKey, or hybrid.ErrExceedsBurst, ErrInvalidN or ErrInvalidKey, or another error of package hybrid if a
// limiter failed. To serve the request without a limit, answer writes nothing and returns true. To refuse the
// request, answer writes the response, or calls WriteError, and returns false. answer cannot serve a request
// whose error wraps ErrExceedsBurst, ErrInvalidN or ErrInvalidKey, or whose context has ended.
func OnError(answer func(http.ResponseWriter, *http.Request, error) (admit bool)) Option {
	return func(s *settings) { s.onError = answer }
}

// Status sets the status of the answer to a denied request; 429 without Status. A code below 200 or above 999
// makes Middleware and Select panic.
func Status(code int) Option { return func(s *settings) { s.status = code } }

// FieldSet selects the fields of an answer about limits, in addition to Retry-After. | combines FieldSets.
type FieldSet int

// The FieldSets.
const (
	// FieldsNone selects no field except Retry-After.
	FieldsNone FieldSet = 0
	// FieldsDraft, the default, selects RateLimit-Policy, with all limits, and RateLimit, with the limit that
	// binds.
	FieldsDraft FieldSet = 1
	// FieldsLegacy selects X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, of the limit that
	// binds. X-RateLimit-Reset is a time in seconds since 1970.
	FieldsLegacy FieldSet = 2
)

// Fields sets the fields of an answer about limits; FieldsDraft without Fields.
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

// rulesMax is the most keys of a hybrid.Limiter.Join.
const rulesMax = 16

// rulesOf returns the rules of a Middleware or RoundTripper. Numbers distinguish Limiters of the same name.
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
