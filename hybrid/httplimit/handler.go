package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/internal/door"
)

// Rule is one limit of a request.
type Rule struct {
	// Name is what RateLimit-Policy calls the limit. Empty means the limiter's Config.Name, or
	// else "default". The rules of a request need names that differ. Where a key has several
	// limits, each one's text is added to the name.
	Name    string
	Limiter *hybrid.Limiter // required
	Key     KeyFunc         // required
	Class   int             // of the limiter's Config.Priorities
}

// Handler limits a handler: next is called for the requests that limiter admits. Others are
// answered with 429 and Retry-After, and each answer has fields that tell of the limit; the options
// change that. Goroutines share it. It panics where limiter or key is nil.
func Handler(limiter *hybrid.Limiter, key KeyFunc, options ...Option) func(http.Handler) http.Handler {
	s := newSettings(options)
	rules := s.rulesOf(limiter, key)
	return s.around(func(r *http.Request) (Selection, error) {
		return Selection{Rules: s.inClass(rules, r), Cost: s.costOf(r)}, nil
	})
}

// Selection is what limits one request.
type Selection struct {
	// Rules are only read, and may be the same each time. Without any the request is not limited.
	Rules []Rule
	// Cost is how many tokens all of them take, or none does.
	Cost int64
	// Done, if set, runs once when the request is decided and its Limiters are no longer needed for
	// it, before it is handled.
	Done func()
}

// Select is Handler where the rules depend on the request: for each one rules says what limits it.
// An error is that of a request without a key; see OnError. The options Also, Cost and Class are
// Handler's, and have no effect here.
func Select(rules func(*http.Request) (Selection, error), options ...Option) func(http.Handler) http.Handler {
	if rules == nil {
		panic("httplimit: Select needs a function")
	}
	return newSettings(options).around(rules)
}

// handler limits next.
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

// ServeHTTP hands next the ResponseWriter as it is, so that it can flush, hijack, or whatever else
// the server's allows.
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

// errAnswered says that a request was denied and has its answer.
var errAnswered = errors.New("httplimit: answered")

// decide is nil where the request is to be handled. Whoever it denies has its answer.
func (h *handler) decide(w http.ResponseWriter, r *http.Request) error {
	selected, err := h.rules(r)
	if selected.Done != nil {
		defer selected.Done()
	}
	switch {
	case err != nil:
		return withoutKey(err)
	case len(selected.Rules) == 1:
		return h.decideOne(w, r, &selected.Rules[0], selected.Cost)
	case len(selected.Rules) > 1:
		return h.decideAll(w, r, selected.Rules, selected.Cost)
	}
	return nil
}

// decideOne decides about a request with one rule. It is the hot path.
func (h *handler) decideOne(w http.ResponseWriter, r *http.Request, rule *Rule, cost int64) error {
	name, err := rule.keyOf(r)
	if err != nil {
		return err
	}
	if rule.Class <= 0 && h.wait <= 0 {
		result, err := rule.Limiter.Take(r.Context(), name, cost)
		return h.tell(w, r, h.policiesOf(rule, rule.Limiter.KnownLimits(name), &result), &result, err)
	}
	key := rule.Limiter.Key(name)
	if rule.Class > 0 {
		key = key.Class(rule.Class)
	}
	result, err := door.Decide(r.Context(), key, cost, h.wait)
	return h.tell(w, r, h.policiesOf(rule, key.KnownLimits(), &result), &result, err)
}

// decideAll decides about a request with several rules.
func (h *handler) decideAll(w http.ResponseWriter, r *http.Request, rules []Rule, cost int64) error {
	joined, keys, err := join(r, rules)
	if err != nil {
		return err
	}
	result, err := door.Decide(r.Context(), joined, cost, h.wait)
	var all policies
	var told []string
	for i, key := range keys {
		one := h.policiesOf(&rules[i], key.KnownLimits(), &result)
		if key.Name() == result.Key && one.find(result.Limit) != nil {
			all.list = one.list
		}
		if errors.Is(err, hybrid.ErrExceedsBurst) {
			all.list = append(all.list, one.list...)
		}
		if one.told != "" {
			told = append(told, one.told)
		}
	}
	all.told = strings.Join(told, ", ")
	return h.tell(w, r, &all, &result, err)
}

// join is the keys of a request, and all of them as one.
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
	name, err := rule.Key(r)
	switch {
	case err != nil:
		return "", withoutKey(err)
	case name == "":
		return "", errEmptyKey
	}
	return name, nil
}

// withoutKey is the error of a KeyFunc, which need not wrap ErrNoKey itself.
func withoutKey(err error) error {
	if errors.Is(err, ErrNoKey) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoKey, err)
}

// policiesOf is what the fields tell of a rule whose key has these limits; where they are not
// known, of the one that the decision rests on. A class may not have all of a burst, nor may a
// limiter with Headroom, so nothing is promised to them.
func (h *handler) policiesOf(rule *Rule, limits []hybrid.Limit, r *hybrid.Result) *policies {
	switch {
	case len(limits) > 0:
	case r.Limit.Tokens > 0:
		limits = []hybrid.Limit{r.Limit}
	default:
		return &policies{}
	}
	ps := h.made.of(rule.name(), limits, h.status)
	if rule.Class > 0 || rule.Limiter.Headroom() > 0 {
		return &policies{list: ps.list}
	}
	return ps
}

func (rule *Rule) name() string {
	if rule.Name != "" {
		return rule.Name
	}
	return nameOf(rule.Limiter)
}

// nameOf is what the fields call a rule without a name.
func nameOf(l *hybrid.Limiter) string {
	if name := l.Name(); name != "" {
		return name
	}
	return "default"
}

// tell sets the fields that tell of a decision, and answers a request that is denied. The error is
// errAnswered then, or why nobody has decided.
func (h *handler) tell(
	w http.ResponseWriter, r *http.Request, ps *policies, result *hybrid.Result, err error,
) error {
	exceeds := errors.Is(err, hybrid.ErrExceedsBurst)
	switch {
	case err != nil && !exceeds:
		return err
	case result.Shadowed:
		return nil // what is only tried is no client's business
	case err == nil && door.Failed(*result) && !result.Limit.Equal(hybrid.Blocked):
		return fmt.Errorf("%w: and what decides without it denies", &outage{result.RetryAfter})
	}
	if exceeds {
		result.Limit = ps.smallest()
	}
	fields, p := w.Header(), ps.find(result.Limit)
	wait := result.RetryAfter
	if exceeds || result.Limit.Equal(hybrid.Blocked) {
		wait = 0
	}
	switch {
	case result.Source == hybrid.SourceFallback: // which keeps no promise of the limit's
		if wait > 0 {
			setRetryAfter(fields, wait)
		}
	case p != nil && !exceeds && !p.limit.Equal(hybrid.Unlimited):
		h.setState(fields, ps, p, result, wait)
	default:
		if h.fields&FieldsDraft != 0 && ps.told != "" {
			add(fields, fieldPolicy, []string{ps.told})
		}
		if wait > 0 {
			setRetryAfter(fields, wait)
		}
	}
	if err == nil && result.OK {
		return nil
	}
	h.deny(w, r, p, result, wait)
	return errAnswered
}

// outage is hybrid.ErrUnavailable of a request that a fallback has denied.
type outage struct{ retryAfter time.Duration }

func (o *outage) Error() string { return hybrid.ErrUnavailable.Error() }
func (o *outage) Unwrap() error { return hybrid.ErrUnavailable }
