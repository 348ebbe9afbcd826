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
	// Name is the name of the limit in RateLimit-Policy. "" means the limiter's Config.Name or, if that is
	// empty, "default". The rules of a request need different names. If a key has several limits, the text
	// of each limit is added to Name.
	Name    string
	Limiter *hybrid.Limiter // required
	Key     KeyFunc         // required
	Class   int             // class of the limiter's Config.Priorities
}

// Middleware returns a function that wraps a handler. The handler gets the requests that limiter admits.
// Other requests get 429 and Retry-After. By default, all answers have fields about the limit. Goroutines may
// share the function and the wrapped handler. Middleware panics if limiter or key is nil.
func Middleware(limiter *hybrid.Limiter, key KeyFunc, options ...Option) func(http.Handler) http.Handler {
	s := newSettings(options)
	rules := s.rulesOf(limiter, key)
	return s.around(func(r *http.Request) (Selection, error) {
		return Selection{Rules: s.inClass(rules, r), Cost: s.costOf(r)}, nil
	})
}

// Selection holds the rules of one request.
type Selection struct {
	// Rules are read-only, so Selections may share a slice. A request with no Rules is not limited.
	Rules []Rule
	// Cost is the number of tokens, 0 or more, that the request takes of each rule.
	Cost int64
	// Done, if set, runs once between the decision and the handler. The Limiters must be open until Done
	// runs.
	Done func()
}

// Select is Middleware with rules that depend on the request. rules returns the Selection of a request. An
// error from rules is handled like a missing key. The options Also, Cost and Class have no effect. Select
// panics if rules is nil.
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

// ServeHTTP passes the server's ResponseWriter to next unwrapped, so that next can flush or hijack it.
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

// errAnswered means that a denial has been written as the answer.
var errAnswered = errors.New("httplimit: request denied and answered")

// decide returns nil for an admitted request, and errAnswered for a denied one.
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

// decideOne decides a request with one rule. decideOne is the hot path.
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

// policiesOf returns the policies of a rule for a key with these limits. Before the first reply, limits is
// empty: policiesOf then uses the limit in r, unless r is about another key or admits a cost of 0. The header
// is empty for a class above 0 and for a limiter with Headroom, because neither can use a whole burst.
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

func nameOf(l *hybrid.Limiter) string { return cmp.Or(l.Name(), "default") }

// respond sets the fields about a decision. respond answers a denied request and returns errAnswered. Any
// other error means that the request is undecided.
func (h *handler) respond(
	w http.ResponseWriter, r *http.Request, ps *policies, result *hybrid.Result, err error,
) error {
	fields, p := w.Header(), ps.find(result.Limit)
	wait := result.RetryAfter
	switch {
	case errors.Is(err, hybrid.ErrExceedsBurst):
		h.setPolicy(fields, ps) // tells the client the burst
		return err
	case err != nil:
		return err
	case result.Shadowed:
		return nil // clients must not see a shadow limit
	case result.Limit.Equal(hybrid.Blocked):
		wait = 0
	case admission.Failed(*result):
		return fmt.Errorf("%w; Policy.Fallback denies the request", &outage{result.RetryAfter})
	}
	promised := result.Source != hybrid.SourceFallback // a fallback may admit more than the limit
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

// outage is hybrid.ErrUnavailable with the Retry-After of a request that a fallback denied.
type outage struct{ retryAfter time.Duration }

func (o *outage) Error() string             { return hybrid.ErrUnavailable.Error() }
func (o *outage) Unwrap() error             { return hybrid.ErrUnavailable }
func (o *outage) RetryAfter() time.Duration { return o.retryAfter }

// Denial describes the denial of a request above a limit.
type Denial struct {
	Result hybrid.Result // decision by the limit with the longest wait
	// Policies has the limit's name in RateLimit-Policy; empty if unknown. Policies is read-only.
	Policies []string
	// RetryAfter is the time in the field Retry-After, in whole seconds; 0 if the limit is Blocked.
	RetryAfter time.Duration
}

var problemContent = []string{"application/problem+json"}

// deny answers a request that the limit p denied. p is nil if the limit is unknown.
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

// fail answers an undecided request or reports that OnError admits it.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) (admits bool) {
	setRetry(w.Header(), err)
	if !h.onError(w, r, err) {
		return false
	}
	// OnError cannot admit a request above the burst, or one whose client has left.
	if admission.NeverServed(err) || r.Context().Err() != nil {
		return WriteError(w, r, err)
	}
	w.Header().Del(fieldRetryAfter)
	return true
}

// setRetry sets Retry-After, unless a retry of the same request would fail again.
func setRetry(fields http.Header, err error) {
	if !admission.NeverServed(err) && !errors.Is(err, ErrNoKey) {
		setRetryAfter(fields, max(time.Second, hybrid.RetryAfter(err)))
	}
}

var plain = &handler{settings: newSettings(nil)}

// WriteDenial answers a denied request like a Middleware without options. WriteDenial is for a handler that
// calls Take or Reserve itself; denied is the Result that they returned. For an error, use WriteError. The
// status is 429, or 503 after a denial by a fallback. RateLimit has the text of the limit, such as "100/m",
// as its name. RateLimit-Policy is missing, because a Result has only one of the key's limits.
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

// WriteError answers an undecided request like a Middleware without OnError, and returns false. An OnError
// calls WriteError for errors that it does not handle. The status is
//
//   - 413 (Content Too Large) if err wraps hybrid.ErrExceedsBurst,
//   - 411 (Length Required) if err wraps hybrid.ErrInvalidN and the length of the request is unknown,
//   - 400 (Bad Request) if err wraps ErrNoKey, hybrid.ErrInvalidN or hybrid.ErrInvalidKey,
//   - 503 (Service Unavailable) with Retry-After otherwise.
func WriteError(w http.ResponseWriter, r *http.Request, err error) (admit bool) {
	status, typ, title := http.StatusBadRequest, "", "The request has no valid key for its rate limit"
	switch {
	case errors.Is(err, hybrid.ErrExceedsBurst):
		status, title = http.StatusRequestEntityTooLarge, "The cost of the request exceeds its quota"
	case errors.Is(err, hybrid.ErrInvalidN) && r.ContentLength < 0:
		status, title = http.StatusLengthRequired, "The cost of the request depends on its length, which is missing"
	case errors.Is(err, hybrid.ErrInvalidN):
		title = "The cost of the request is not valid"
	case !errors.Is(err, ErrNoKey) && !errors.Is(err, hybrid.ErrInvalidKey):
		status, typ = http.StatusServiceUnavailable, problemType+"temporary-reduced-capacity"
		title = "The request cannot be served now, because its quota is unknown"
	}
	setRetry(w.Header(), err)
	answer(w, status, problem(status, typ, title, nil))
	return false
}

func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header()[fieldContentType] = problemContent
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has left
}

// problemType is the URL of the IANA registry of problem types.
const problemType = "https://iana.org/assignments/http-problem-types#"

const quotaExceeded = "The request cannot be served, as its quota has been exceeded"

func problem(status int, typ, title string, violated []string) []byte {
	body, err := json.Marshal(struct {
		Type     string   `json:"type,omitempty"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Violated []string `json:"violated-policies,omitempty"`
	}{typ, title, status, violated})
	if err != nil {
		panic(err) // never happens: strings and numbers have a JSON form
	}
	return append(body, '\n')
}
