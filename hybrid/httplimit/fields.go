package httplimit

import (
	"net/http"
	"strconv"
	"time"
	"unsafe"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// The fields of an answer, in the canonical form of http.Header.
const (
	fieldPolicy          = "Ratelimit-Policy"
	fieldLimit           = "Ratelimit"
	fieldRetryAfter      = "Retry-After"
	fieldLegacyLimit     = "X-Ratelimit-Limit"
	fieldLegacyRemaining = "X-Ratelimit-Remaining"
	fieldLegacyReset     = "X-Ratelimit-Reset"
	fieldContentType     = "Content-Type"
)

// values holds three values of fields and the bytes of two in one allocation. Separate strings and
// slices would be five, and a request may cost two at most.
type values struct {
	list [3]string
	n    uint8
	end  uint8
	text [62]byte
}

// room returns the empty slice to which the text of the next value is appended.
func (v *values) room() []byte { return v.text[v.end:v.end] }

// put makes text, which begins in room, the next value. The caller must not write to text afterwards.
func (v *values) put(text []byte) []string {
	if len(text) <= len(v.text)-int(v.end) { // otherwise append has moved it
		v.end += uint8(len(text))
	}
	return v.add(unsafe.String(unsafe.SliceData(text), len(text)))
}

// add makes text the next value. The slice belongs to this answer, because handlers may change it.
func (v *values) add(text string) []string {
	v.list[v.n] = text
	v.n++
	return v.list[v.n-1 : v.n : v.n]
}

// setState sets the fields about all limits ps, and about the decision r by one of them, p. wait is the
// Retry-After of a denial.
func (s *settings) setState(h http.Header, ps *policies, p *policy, r *hybrid.Result, wait time.Duration) {
	left := min(max(r.Remaining, 0), p.quota)
	reset := wait
	switch {
	case !r.OK:
	case left > 0 || p.limit.Windowed(): // a window has its next token when it stops counting old ones
		reset = r.ResetAfter
	default:
		reset = (p.limit.Per-1)/time.Duration(p.limit.Tokens) + 1 // the next token is there by then
	}
	v := new(values)
	if s.fields&FieldsDraft != 0 {
		if ps.header != "" {
			add(h, fieldPolicy, v.add(ps.header))
		}
		text := append(append(v.room(), p.quoted...), ";r="...)
		text = strconv.AppendInt(text, left, 10)
		if reset > 0 { // otherwise no tokens are to come
			text = strconv.AppendInt(append(text, ";t="...), min(seconds(reset), integerMax), 10)
		}
		add(h, fieldLimit, v.put(text))
	}
	if wait > 0 {
		h[fieldRetryAfter] = v.put(strconv.AppendInt(v.room(), seconds(wait), 10))
	}
	if s.fields&FieldsLegacy != 0 {
		h[fieldLegacyLimit] = []string{p.legacy}
		h[fieldLegacyRemaining] = []string{strconv.FormatInt(left, 10)}
		if reset > 0 || r.OK {
			at := time.Now().Add(reset + time.Second - 1).Unix()
			h[fieldLegacyReset] = []string{strconv.FormatInt(at, 10)}
		}
	}
}

// add sets a field, or adds to the value that a handler around this one has set.
func add(h http.Header, field string, value []string) {
	if have := h[field]; len(have) > 0 {
		value = append(have[:len(have):len(have)], value...)
	}
	h[field] = value
}

// setRetryAfter sets Retry-After.
func setRetryAfter(h http.Header, d time.Duration) {
	h[fieldRetryAfter] = []string{strconv.FormatInt(seconds(d), 10)}
}
