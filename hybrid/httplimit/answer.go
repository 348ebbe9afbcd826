package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Denial is what the answer to a request above a limit says.
type Denial struct {
	// Result is the decision, by the limit that binds. Of a request for more than a burst, which no
	// wait would help, it has only the Limit, and that only where it is known.
	Result hybrid.Result
	// Policies are the names of the limits that denied, as RateLimit-Policy has them. They are not to
	// be changed.
	Policies []string
	// RetryAfter is what the field of that name says, in whole seconds; 0 where asking again is in
	// vain.
	RetryAfter time.Duration
}

var problemContent = []string{"application/problem+json"}

// deny answers a request above the limit p, which may be unknown.
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

// fail answers a request that nobody has decided about. It reports whether the request is to be
// admitted all the same.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) (admit bool) {
	keyless := errors.Is(err, ErrNoKey)
	if !keyless {
		wait := time.Second
		if o := (*outage)(nil); errors.As(err, &o) {
			wait = max(wait, o.retryAfter)
		}
		setRetryAfter(w.Header(), wait)
	}
	answered := false
	if h.onError != nil {
		admit = h.onError(w, r, err)
		answered = !admit
	}
	switch {
	case answered:
	case admit && r.Context().Err() == nil:
		w.Header().Del(fieldRetryAfter)
		return true
	case keyless:
		const status = http.StatusBadRequest
		answer(w, status, problem(status, "", "The request does not say whom it counts for", nil))
	default:
		const status = http.StatusServiceUnavailable
		answer(w, status, problem(status, problemType+"temporary-reduced-capacity",
			"The request cannot be served now, as its quota is not known", nil))
	}
	return false // also where the client has gone: it may have done so to be admitted
}

// answer writes a problem.
func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header()[fieldContentType] = problemContent
	w.WriteHeader(status)
	_, _ = w.Write(body) // nobody is there to be told
}

// problemType is where the problem types of the IETF's draft are registered.
const problemType = "https://iana.org/assignments/http-problem-types#"

const quotaExceeded = "The request cannot be served, as its quota has been exceeded"

// problem is an application/problem+json.
func problem(status int, typ, title string, violated []string) []byte {
	body, err := json.Marshal(struct {
		Type     string   `json:"type,omitempty"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Violated []string `json:"violated-policies,omitempty"`
	}{typ, title, status, violated})
	if err != nil {
		panic(err) // strings and a number always can
	}
	return append(body, '\n')
}
