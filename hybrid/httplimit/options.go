package httplimit

import (
	"net/http"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Option is a setting of Handler, Select or RoundTripper.
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
}

// Denial is what an answer to a request above a limit says.
type Denial struct {
	// Result is the decision, of the limit that binds. It is empty where the request asks for more
	// than a burst.
	Result hybrid.Result
	// Policies are the names of the limits that denied, as RateLimit-Policy has them.
	Policies []string
	// RetryAfter is what the field of that name says, in whole seconds; 0 where asking again is in
	// vain.
	RetryAfter time.Duration
}

// Also adds a limit. A request takes its tokens from all or from none; see hybrid.Limiter.Join.
func Also(limiter *hybrid.Limiter, key KeyFunc) Option {
	return func(s *settings) { s.also = append(s.also, Rule{Limiter: limiter, Key: key}) }
}

// Cost says how many tokens a request asks for; 1 without it. 0 is admitted and takes nothing.
func Cost(cost func(*http.Request) int64) Option { return func(s *settings) { s.cost = cost } }

// Skip says which requests are not limited.
func Skip(skip func(*http.Request) bool) Option { return func(s *settings) { s.skip = skip } }

// Class says in which class of hybrid.Config.Priorities a request is.
func Class(class func(*http.Request) int) Option { return func(s *settings) { s.class = class } }

// Wait has a request wait for at most d instead of being denied at once.
func Wait(d time.Duration) Option { return func(s *settings) { s.wait = d } }

// OnLimit answers requests above a limit. The fields are set before, and may be changed; the
// status is still to be written.
func OnLimit(answer func(http.ResponseWriter, *http.Request, Denial)) Option {
	return func(s *settings) { s.onLimit = answer }
}

// OnError answers requests that nothing decides on: those without a key, with an error that wraps
// ErrNoKey if the KeyFunc's does, and those of a limiter that fails, with an error of package
// hybrid. Where it reports true it has written nothing, and the request is handled without a limit.
func OnError(answer func(http.ResponseWriter, *http.Request, error) (admit bool)) Option {
	return func(s *settings) { s.onError = answer }
}

// Status is the status of an answer to a request above a limit, in place of 429.
func Status(code int) Option { return func(s *settings) { s.status = code } }

// FieldSet says which fields of an answer tell of limits. The sets may be combined by |.
type FieldSet int

// The sets of fields.
const (
	FieldsNone   FieldSet = 0         // only Retry-After
	FieldsDraft  FieldSet = 1 << iota // RateLimit-Policy and RateLimit of the IETF's draft; the default
	FieldsLegacy                      // X-RateLimit-Limit, -Remaining and -Reset, of the limit that binds
)

// Fields says which fields of an answer tell of limits.
func Fields(set FieldSet) Option { return func(s *settings) { s.fields = set } }
