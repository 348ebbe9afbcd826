package httplimit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/internal/admission"
)

// Rule is one limit of a request.
type Rule struct {
	// Name names the limit in RateLimit-Policy. "" means the limiter's Config.Name, or "default" if that name
	// is empty too. The rules of a request need different names. If a key has several limits, the text of
	// each limit is added to the name.
	Name    string
	Limiter *hybrid.Limiter // required
	Key     KeyFunc         // required
	Class   int             // class of the limiter's Config.Priorities
}

// Middleware returns a function that wraps a handler. The handler gets the requests that limiter admits;
// other requests are answered with 429 and Retry-After. Each answer has fields about the limit. Options
// change these defaults. Goroutines may share that function. Middleware panics if limiter or key is nil.
func Middleware(limiter *hybrid.Limiter, key KeyFunc, options ...Option) func(http.Handler) http.Handler {
	s := newSettings(options)
	rules := s.rulesOf(limiter, key)
	return s.around(func(r *http.Request) (Selection, error) {
		return Selection{Rules: s.inClass(rules, r), Cost: s.costOf(r)}, nil
	})
}

// Selection holds the rules of one request.
type Selection struct {
	// Rules are read-only, so Selections may share a slice. A request with an empty list is not limited.
	Rules []Rule
	// Cost is the number of tokens, 0 or more, that the request takes of every rule, or of none.
	Cost int64
	// Done, if set, runs once between the decision and the handler. The Limiters must be open until Done
	// runs.
	Done func()
}

// Select is Middleware with rules that depend on the request. rules returns the Selection of each request;
// OnError handles an error that rules returns in the same way as a missing key. The options Also, Cost and
// Class have no effect. Select panics if rules is nil.
func Select(rules func(*http.Request) (Selection, error), options ...Option) func(http.Handler) http.Handler {
	if rules == nil {
		panic("httplimit: Select needs a function")
	}
	return newSettings(options).around(rules)
}

type handler struct {
	*settings
	rules func(*http.Request) (Selection, error)
	next  http.Handler
}

func (s *settings) around(rules func(*http.Request) (Selection, error)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return &handler{settings: s, rules: rules, next: next}
	}
}

// ServeHTTP passes the server's ResponseWriter itself to next, so that next can flush or hijack it.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.skip != nil && h.skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	err := h.decide(w, r)
	if err == nil || !errors.Is(err, errAnswered) && h.fail(w, r, err) {
		h.next.ServeHTTP(w, r)
	}
}

// errAnswered means that a request was denied and answered.
var errAnswered = errors.New("httplimit: answered")

// decide returns nil if the request is to be handled, and errAnswered if the request was denied.
func (h *handler) decide(w http.ResponseWriter, r *http.Request) error {
	selected, err := h.rules(r)
	if selected.Done != nil {
		defer selected.Done()
	}
	switch {
	case err != nil:
		return admission.NoKey(ErrNoKey, err)
	case len(selected.Rules) == 1:
		return h.decideOne(w, r, &selected.Rules[0], selected.Cost)
	case len(selected.Rules) > 1:
		return h.decideAll(w, r, selected.Rules, selected.Cost)
	}
	return nil
}

// decideOne decides a request with one rule, on the hot path.
func (h *handler) decideOne(w http.ResponseWriter, r *http.Request, rule *Rule, cost int64) error {
	name, err := rule.keyOf(r)
	if err != nil {
		return err
	}
	if rule.Class <= 0 && h.wait <= 0 {
		result, err := rule.Limiter.Take(r.Context(), name, cost)
		return h.respond(w, r, h.policiesOf(rule, name, rule.Limiter.CachedLimits(name), &result), &result, err)
	}
	key := rule.Limiter.Key(name)
	if rule.Class > 0 {
		key = key.Class(rule.Class)
	}
	result, err := admission.Decide(r.Context(), key, cost, h.wait)
	return h.respond(w, r, h.policiesOf(rule, name, key.CachedLimits(), &result), &result, err)
}

// decideAll decides a request with several rules.
func (h *handler) decideAll(w http.ResponseWriter, r *http.Request, rules []Rule, cost int64) error {
	joined, keys, err := join(r, rules)
	if err != nil {
		return err
	}
	result, err := admission.Decide(r.Context(), joined, cost, h.wait)
	var all policies
	var headers []string
	for i, key := range keys {
		one := h.policiesOf(&rules[i], key.Name(), key.CachedLimits(), &result)
		if key.Name() == result.Key && one.find(result.Limit) != nil {
			all.list = one.list
		}
		if one.header != "" {
			headers = append(headers, one.header)
		}
	}
	all.header = strings.Join(headers, ", ")
	return h.respond(w, r, &all, &result, err)
}

// join returns the keys of a request, both joined and as a list.
func join(r *http.Request, rules []Rule) (*hybrid.Joined, []*hybrid.Key, error) {
	keys := make([]*hybrid.Key, len(rules))
	for i := range rules {
		name, err := rules[i].keyOf(r)
		if err != nil {
			return nil, nil, err
		}
		keys[i] = rules[i].Limiter.Key(name)
		if rules[i].Class > 0 {
			keys[i] = keys[i].Class(rules[i].Class)
		}
	}
	return rules[0].Limiter.Join(keys...), keys, nil
}

func (rule *Rule) keyOf(r *http.Request) (string, error) {
	return admission.KeyOf(ErrNoKey, rule.Key, r)
}

// policiesOf returns the policies of a rule whose key has these limits. If limits is empty, policiesOf
// returns the policy of the limit in r if r is for this key. A process without a reply that admits a request
// of cost 0 knows no limit at all. RateLimit-Policy is empty for a class, and for a limiter with Headroom, as
// neither can use all of a burst.
func (h *handler) policiesOf(rule *Rule, key string, limits []hybrid.Limit, r *hybrid.Result) *policies {
	switch {
	case len(limits) > 0:
	case r.Limit.Tokens > 0 && r.Key == key && !(r.OK && r.Source == hybrid.SourceLocal):
		limits = []hybrid.Limit{r.Limit}
	default:
		return &policies{}
	}
	ps := h.made.policiesFor(cmp.Or(rule.Name, nameOf(rule.Limiter)), limits, h.status)
	if rule.Class > 0 || rule.Limiter.Headroom() > 0 {
		return &policies{list: ps.list}
	}
	return ps
}

// nameOf returns the name of a rule of l without a Name.
func nameOf(l *hybrid.Limiter) string { return cmp.Or(l.Name(), "default") }

// respond sets the fields about a decision. respond answers a denied request and then returns errAnswered.
// Any other error of respond means that the request is undecided.
func (h *handler) respond(
	w http.ResponseWriter, r *http.Request, ps *policies, result *hybrid.Result, err error,
) error {
	fields, p := w.Header(), ps.find(result.Limit)
	wait := result.RetryAfter
	switch {
	case errors.Is(err, hybrid.ErrExceedsBurst):
		h.setPolicy(fields, ps) // RateLimit-Policy shows the burst to the client
		return err
	case err != nil:
		return err
	case result.Shadowed:
		return nil // a client must not see a shadow limit
	case result.Limit.Equal(hybrid.Blocked):
		wait = 0
	case admission.Failed(*result):
		return fmt.Errorf("%w; Policy.Fallback denies the request", &outage{result.RetryAfter})
	}
	promised := result.Source != hybrid.SourceFallback // a fallback does not keep the promise of the limit
	if promised && p != nil && !p.limit.Equal(hybrid.Unlimited) {
		h.setState(fields, ps, p, result, wait)
	} else {
		if promised {
			h.setPolicy(fields, ps)
		}
		if wait > 0 {
			setRetryAfter(fields, wait)
		}
	}
	if result.OK {
		return nil
	}
	h.deny(w, r, p, result, wait)
	return errAnswered
}

// outage is hybrid.ErrUnavailable for a request that a fallback denied.
type outage struct{ retryAfter time.Duration }

func (o *outage) Error() string             { return hybrid.ErrUnavailable.Error() }
func (o *outage) Unwrap() error             { return hybrid.ErrUnavailable }
func (o *outage) RetryAfter() time.Duration { return o.retryAfter }

// Denial describes the denial of a request above a limit.
type Denial struct {
	Result hybrid.Result // decision by the limit that binds
	// Policies are the names of the limits that denied, as in RateLimit-Policy. Policies is read-only.
	Policies []string
	// RetryAfter is the field Retry-After, in whole seconds; 0 if the limit is Blocked.
	RetryAfter time.Duration
}

var problemContent = []string{"application/problem+json"}

// deny answers a request above the limit p. p is nil if the limit is unknown.
func (h *handler) deny(
	w http.ResponseWriter, r *http.Request, p *policy, result *hybrid.Result, wait time.Duration,
) {
	var names []string
	if p != nil {
		names = p.names
	}
	switch {
	case h.onLimit != nil:
		h.onLimit(w, r, Denial{*result, names, time.Duration(seconds(wait)) * time.Second})
	case p != nil:
		answer(w, h.status, p.body)
	default:
		answer(w, h.status, problem(h.status, problemType+"quota-exceeded", quotaExceeded, nil))
	}
}

// fail answers an undecided request, and reports whether OnError admits the request.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) (admits bool) {
	setRetry(w.Header(), err)
	if !h.onError(w, r, err) {
		return false
	}
	// OnError must not admit a client that asks for too much, or that has left.
	if admission.NeverServed(err) || r.Context().Err() != nil {
		return WriteError(w, r, err)
	}
	w.Header().Del(fieldRetryAfter)
	return true
}

// setRetry sets Retry-After, unless the request itself is at fault.
func setRetry(fields http.Header, err error) {
	if !admission.NeverServed(err) && !errors.Is(err, ErrNoKey) {
		setRetryAfter(fields, max(time.Second, hybrid.RetryAfter(err)))
	}
}

// plain has the settings of a Middleware without options.
var plain = &handler{settings: newSettings(nil)}

// WriteDenial answers a denied request like a Middleware without options, for a handler that takes or
// reserves the tokens itself. denied is the Result, not OK, of Take or of a Reservation. The answer is 429
// with RateLimit and Retry-After, or 503 after a denial by a fallback. The limit is named by its text, such
// as "100/m". RateLimit-Policy is missing, because a Result has only one limit of the key. WriteError answers
// an error of Reserve or Take.
func WriteDenial(w http.ResponseWriter, r *http.Request, denied hybrid.Result) {
	ps := &policies{}
	if denied.Limit.Tokens > 0 {
		ps = plain.made.policiesFor(denied.Limit.String(), []hybrid.Limit{denied.Limit}, plain.status)
		ps = &policies{list: ps.list}
	}
	denied.OK, denied.Shadowed = false, false
	if err := plain.respond(w, r, ps, &denied, nil); !errors.Is(err, errAnswered) {
		WriteError(w, r, err)
	}
}

// WriteError answers an undecided request like a handler without OnError, and returns false. An OnError calls
// WriteError for errors that it does not handle, and a handler for errors of its own Reserve or Take. The
// status is
//
//   - 413 (Content Too Large) if err wraps hybrid.ErrExceedsBurst,
//   - 411 (Length Required) if err wraps hybrid.ErrInvalidN and the length of the request is unknown,
//   - 400 (Bad Request) if err wraps ErrNoKey, hybrid.ErrInvalidN or hybrid.ErrInvalidKey,
//   - 503 (Service Unavailable) with Retry-After otherwise.
func WriteError(w http.ResponseWriter, r *http.Request, err error) (admit bool) {
	status, typ, title := http.StatusBadRequest, "", "The request does not say whom it counts for"
	switch {
	case errors.Is(err, hybrid.ErrExceedsBurst):
		status, title = http.StatusRequestEntityTooLarge, "The request costs more than its quota ever has"
	case errors.Is(err, hybrid.ErrInvalidN) && r.ContentLength < 0:
		status, title = http.StatusLengthRequired, "The request has no length, on which its cost depends"
	case errors.Is(err, hybrid.ErrInvalidN):
		title = "The cost of the request is not valid"
	case !errors.Is(err, ErrNoKey) && !errors.Is(err, hybrid.ErrInvalidKey):
		status, typ = http.StatusServiceUnavailable, problemType+"temporary-reduced-capacity"
		title = "The request cannot be served now, as its quota is not known"
	}
	setRetry(w.Header(), err)
	answer(w, status, problem(status, typ, title, nil))
	return false
}

// answer writes a response with a status and a problem.
func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header()[fieldContentType] = problemContent
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has left
}

// problemType is the registry of the problem types in the IETF's draft.
const problemType = "https://iana.org/assignments/http-problem-types#"

const quotaExceeded = "The request cannot be served, as its quota has been exceeded"

// problem returns a body of application/problem+json.
func problem(status int, typ, title string, violated []string) []byte {
	body, err := json.Marshal(struct {
		Type     string   `json:"type,omitempty"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Violated []string `json:"violated-policies,omitempty"`
	}{typ, title, status, violated})
	if err != nil {
		panic(err) // never happens with strings and a number
	}
	return append(body, '\n')
}
