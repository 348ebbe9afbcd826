package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Denial describes the denial of a request above a limit.
type Denial struct {
	// Result is the decision by the limit that binds. For a request above the burst, which no wait
	// would help, it has only the Limit, if that is known.
	Result hybrid.Result
	// Policies are the names of the limits that denied, as in RateLimit-Policy. They are read-only.
	Policies []string
	// RetryAfter is the field of that name, in whole seconds; 0 if no retry can succeed.
	RetryAfter time.Duration
}

var problemContent = []string{"application/problem+json"}

// deny answers a request above the limit p; nil if that is unknown.
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

// fail answers an undecided request. It reports whether OnError admits the request.
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
	return false // also if the client has gone: it may have gone in order to be admitted
}

// answer writes a problem.
func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header()[fieldContentType] = problemContent
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has gone
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
		panic(err) // never, with strings and a number
	}
	return append(body, '\n')
}
