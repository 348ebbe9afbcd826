package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
)

// script is a RoundTripper that gives one answer after another, and the last one from then on. It records
// the requests, and the bodies of answers that are open.
type script struct {
	answers []string // a status and the fields, such as "429 Retry-After=2"
	mu      sync.Mutex
	sent    []string // method, path, body, and after how many milliseconds
	open    atomic.Int64
	since   time.Time
}

type body struct {
	io.Reader
	closed func()
}

func (b *body) Close() error {
	b.closed()
	return nil
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		sent, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = time.Now()
	}
	at := time.Since(s.since).Milliseconds()
	text := strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, sent))
	s.sent = append(s.sent, fmt.Sprintf("%s at %d", text, at))
	words := strings.Split(s.answers[min(len(s.sent), len(s.answers))-1], " ")
	answer := &http.Response{Header: http.Header{}, Request: r}
	_, _ = fmt.Sscan(words[0], &answer.StatusCode)
	for _, field := range words[1:] {
		name, value, _ := strings.Cut(field, "=")
		answer.Header.Set(name, strings.ReplaceAll(value, "_", " "))
	}
	s.open.Add(1)
	answer.Body = &body{strings.NewReader(strings.Repeat("x", 100_000)),
		sync.OnceFunc(func() { s.open.Add(-1) })}
	return answer, nil
}

func request(t *testing.T, method, path string, change ...func(*http.Request)) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), method, "http://service"+path, nil)
	noErr(t, err)
	for _, c := range change {
		c(r)
	}
	return r
}

func withBody(again bool) func(*http.Request) {
	return func(r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader("body"))
		if again {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("body")), nil }
		}
	}
}

// pathKey is the path of a request.
func pathKey(r *http.Request) (string, error) { return r.URL.Path, nil }

// A request is sent again, or not, for each answer and each kind of request.
func TestRoundTripperSendsAgainWhatMayBe(t *testing.T) {
	idempotent := func(r *http.Request) { r.Header.Set("Idempotency-Key", "1") }
	deadline := func(d time.Duration) func(*http.Request) {
		return func(r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), d)
			t.Cleanup(cancel)
			*r = *r.WithContext(ctx)
		}
	}
	const today = "429 Retry-After=Sat,_01_Jan_2000_00:00:10_GMT"
	const late = " Date=Sat,_01_Jan_2000_00:00:07_GMT|200" // the server's clock is 7 s ahead
	for _, c := range []struct {
		name, method string
		change       []func(*http.Request)
		answers      string // with | between them
		want         string // when it is sent, in milliseconds
		status       int
	}{
		{"seconds", "GET", nil, "429 Retry-After=2|200", "0 2000", 200},
		{"503", "GET", nil, "503 Retry-After=2|200", "0 2000", 200},
		{"a date, by the server's clock", "GET", nil, today + late, "0 3000", 200},
		{"a date, by our clock", "GET", nil, today + "|200", "0 10000", 200},
		{"a date that is over", "GET", nil, "429 Retry-After=Fri,_31_Dec_1999_00:00:10_GMT|200", "0", 429},
		{"no more than four times", "GET", nil, "429 Retry-After=1", "0 1000 2000 3000", 429},
		{"without Retry-After", "GET", nil, "429|200", "0", 429},
		{"now", "GET", nil, "429 Retry-After=0|200", "0", 429},
		{"garbage", "GET", nil, "429 Retry-After=soon|200", "0", 429},
		{"empty", "GET", nil, "429 Retry-After=|200", "0", 429},
		{"below 0", "GET", nil, "429 Retry-After=-1|200", "0", 429},
		{"below 0, with a fraction", "GET", nil, "429 Retry-After=-0.5|200", "0", 429},
		{"no number", "GET", nil, "429 Retry-After=NaN|200", "0", 429},
		{"infinite", "GET", nil, "429 Retry-After=Inf|200", "0", 429},
		{"hexadecimal", "GET", nil, "429 Retry-After=0x10|200", "0", 429},
		{"an exponent", "GET", nil, "429 Retry-After=1e2|200", "0", 429},
		{"two points", "GET", nil, "429 Retry-After=1.2.3|200", "0", 429},
		{"a point", "GET", nil, "429 Retry-After=.|200", "0", 429},
		{"a fraction", "GET", nil, "429 Retry-After=299.997|200", "0 300000", 200},
		{"a small fraction", "GET", nil, "503 Retry-After=0.001|200", "0 1000", 200},
		{"milliseconds", "GET", nil, "429 Retry-After-Ms=500|200", "0 500", 200},
		{"a fraction of milliseconds", "GET", nil, "429 Retry-After-Ms=499.2|200", "0 500", 200},
		{"milliseconds and seconds", "GET", nil, "429 Retry-After-Ms=1500 Retry-After=9|200", "0 1500", 200},
		{"garbage, and seconds", "GET", nil, "429 Retry-After-Ms=soon Retry-After=2|200", "0 2000", 200},
		{"0 milliseconds, and seconds", "GET", nil, "429 Retry-After-Ms=0 Retry-After=2|200", "0 2000", 200},
		{"milliseconds for ever", "GET", nil, "429 Retry-After-Ms=99999999999999999999|200", "0", 429},
		{"another status", "GET", nil, "500 Retry-After=1|200", "0", 500},
		{"ten minutes", "GET", nil, "429 Retry-After=600|200", "0 600000", 200},
		{"too long", "GET", nil, "429 Retry-After=601|200", "0", 429},
		{"for ever", "GET", nil, "429 Retry-After=99999999999999999999|200", "0", 429},
		{"of many digits", "GET", nil, "429 Retry-After=" + strings.Repeat("9", 400) + "|200", "0", 429},
		{"longer than its deadline", "GET", list(deadline(2 * time.Second)), "429 Retry-After=2|200", "0", 429},
		{"POST", "POST", nil, "429 Retry-After=1|200", "0", 429},
		{"idempotent POST", "POST", list(idempotent, withBody(true)), "429 Retry-After=1|200", "0 1000", 200},
		{"PUT", "PUT", list(withBody(true)), "503 Retry-After=1|429 Retry-After=1|201", "0 1000 2000", 201},
		{"PUT of a stream", "PUT", list(withBody(false)), "503 Retry-After=1|200", "0", 503},
		{"DELETE", "DELETE", nil, "429 Retry-After=1|204", "0 1000", 204},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := &script{answers: strings.Split(c.answers, "|")}
				transport := httplimit.RoundTripper(limiterOf(t, hybrid.PerSecond(100)), pathKey, next)
				r := request(t, c.method, "/a", c.change...)
				before := *r
				answer, err := transport.RoundTrip(r)
				noErr(t, err)
				check(t, answer.StatusCode == c.status, "%d", answer.StatusCode)
				var want []string
				sent := strings.TrimSuffix(c.method+" /a "+map[bool]string{true: "body"}[r.Body != nil], " ")
				for at := range strings.FieldsSeq(c.want) {
					want = append(want, sent+" at "+at)
				}
				check(t, slices.Equal(next.sent, want), "%q, want %q", next.sent, want)
				check(t, next.open.Load() == 1, "%d bodies are open, beside that of the answer", next.open.Load()-1)
				got, err := io.ReadAll(answer.Body)
				check(t, err == nil && len(got) == 100_000, "%d bytes, %v", len(got), err)
				check(t, r.Body == before.Body && r.URL == before.URL, "the request was changed")
			})
		})
	}
}

// 429 and 503 make requests pause. PauseOn adds other statuses.
func TestPauseOnAddsStatuses(t *testing.T) {
	always, added := []int{429, 503}, []int{403, 529}
	for _, status := range []int{429, 503, 403, 529, 500} {
		for _, more := range [][]int{nil, added} {
			synctest.Test(t, func(t *testing.T) {
				next := &script{answers: []string{fmt.Sprint(status, " Retry-After=2"), "200"}}
				transport := httplimit.RoundTripper(limiterOf(t, hybrid.PerSecond(100)), pathKey, next,
					httplimit.PauseOn(more...))
				_, err := transport.RoundTrip(request(t, "GET", "/a"))
				noErr(t, err)
				want := []string{"GET /a at 0", "GET /a at 2000"}
				if !slices.Contains(slices.Concat(always, more), status) {
					want = want[:1]
				}
				check(t, slices.Equal(next.sent, want), "%d, PauseOn(%v): %q", status, more, next.sent)
			})
		}
	}
}

// All requests of a key wait for the Retry-After of one, and those of another key do not.
func TestAllRequestsOfAKeyHonourRetryAfter(t *testing.T) {
	for status, wait := range map[string]int64{
		"429 Retry-After=30": 30, "503 Retry-After=7200": 600, "429 Retry-After=99999999999999999999": 600,
	} {
		synctest.Test(t, func(t *testing.T) {
			next := &script{answers: []string{status, "200"}}
			transport := httplimit.RoundTripper(limiterOf(t, hybrid.PerSecond(100)), pathKey, next)
			answer, err := transport.RoundTrip(request(t, "POST", "/a")) // which is not sent again
			check(t, err == nil && answer.StatusCode >= 429, "%v %v", answer, err)
			var all sync.WaitGroup
			for _, path := range []string{"/a", "/b", "/a"} {
				all.Go(func() {
					_, err := transport.RoundTrip(request(t, "GET", path))
					noErr(t, err)
				})
			}
			all.Wait()
			slices.Sort(next.sent)
			late := fmt.Sprintf("GET /a at %d", 1000*wait)
			check(t, slices.Equal(next.sent, []string{late, late, "GET /b at 0", "POST /a at 0"}), "%q", next.sent)

			// A request that cannot wait that long fails at once.
			next.answers = []string{"429 Retry-After=30"}
			_, err = transport.RoundTrip(request(t, "POST", "/a"))
			noErr(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 29*time.Second)
			defer cancel()
			from, closed := time.Now(), false
			r := request(t, "POST", "/a")
			r.Body = &body{strings.NewReader(""), func() { closed = true }}
			_, err = transport.RoundTrip(r.WithContext(ctx))
			check(t, errors.Is(err, hybrid.ErrWouldExceedDeadline) && time.Since(from) == 0 && closed,
				"%v after %v, the body is closed: %t", err, time.Since(from), closed)
		})
	}
}

// A request that waits for its tokens when an answer asks for a pause takes none: it waits for the pause too,
// or fails at once if it cannot wait that long.
func TestAPauseReachesRequestsThatWaitForTokens(t *testing.T) {
	for patience, sent := range map[time.Duration]int{10 * time.Second: 1, time.Minute: 2} {
		synctest.Test(t, func(t *testing.T) {
			next := &script{answers: []string{"429 Retry-After=30", "200"}}
			limiter := limiterOf(t, hybrid.Every(time.Second))
			late := roundTripper(func(r *http.Request) (*http.Response, error) {
				time.Sleep(time.Second / 2) // the answer comes while the second request waits
				return next.RoundTrip(r)
			})
			transport, from := httplimit.RoundTripper(limiter, httplimit.OneKey, late), time.Now()
			var both sync.WaitGroup
			both.Go(func() { _, _ = transport.RoundTrip(request(t, "POST", "/first")) })
			time.Sleep(time.Second / 10)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := transport.RoundTrip(request(t, "GET", "/second").WithContext(ctx))
			took := time.Since(from)
			both.Wait()
			check(t, (err == nil) == (sent == 2) && len(next.sent) == sent, "%v, %q", err, next.sent)
			check(t, sent == 1 || strings.HasSuffix(next.sent[1], " at 30500"), "%q", next.sent)
			check(t, sent == 2 || errors.Is(err, hybrid.ErrWouldExceedDeadline) && took == time.Second/2,
				"%v after %v", err, took)
			check(t, limiter.Stats().Admitted == int64(sent), "%+v", limiter.Stats())
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Requests are sent at the rate of the limit, in turn.
func TestRoundTripperWaitsForTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, limiter := &script{answers: []string{"200"}}, limiterOf(t, hybrid.Every(100*time.Millisecond))
		transport := httplimit.RoundTripper(limiter, httplimit.OneKey, next)
		from := time.Now()
		for range 101 {
			_, err := transport.RoundTrip(request(t, "GET", "/"))
			noErr(t, err)
		}
		took := time.Since(from)
		check(t, took >= 10*time.Second && took < 10100*time.Millisecond, "101 requests took %v at 10/s", took)

		// A cancelled request is not sent, and its tokens go to others.
		for range 20 {
			ctx, cancel := context.WithCancelCause(t.Context())
			gone := errors.New("gone")
			time.AfterFunc(3*time.Millisecond, func() { cancel(gone) })
			closed := false
			r := request(t, "POST", "/never").WithContext(ctx)
			r.Body = &body{strings.NewReader(""), func() { closed = true }}
			_, err := transport.RoundTrip(r)
			check(t, errors.Is(err, context.Canceled) && closed, "%v, closed %t", err, closed)
		}
		check(t, !strings.Contains(fmt.Sprint(next.sent), "never"), "%q", next.sent)
		time.Sleep(time.Second)
		check(t, limiter.Stats().Conserved() && limiter.Stats().Waiting == 0, "%+v", limiter.Stats())

		// Wait bounds the waiting, and nothing else.
		limited := httplimit.RoundTripper(limiter, httplimit.OneKey, next, httplimit.Wait(50*time.Millisecond))
		_, err := limited.RoundTrip(request(t, "GET", "/"))
		noErr(t, err)
		from = time.Now()
		_, err = limited.RoundTrip(request(t, "GET", "/"))
		took = time.Since(from)
		check(t, errors.Is(err, hybrid.ErrWouldExceedDeadline) && took == 0, "%v after %v", err, took)

		// A request without a key is not sent either.
		keyed := func(options ...httplimit.Option) error {
			_, err := httplimit.RoundTripper(limiter, httplimit.Header("X-User"), next, options...).
				RoundTrip(request(t, "GET", "/"))
			return err
		}
		err = keyed()
		check(t, errors.Is(err, httplimit.ErrNoKey), "%v", err)
		sent := len(next.sent)
		err = keyed(httplimit.Skip(func(*http.Request) bool { return true }))
		check(t, err == nil && len(next.sent) == sent+1, "a skipped request is not sent: %v", err)
	})
}

// With Also and Cost a request waits for all limits, and takes as much of each.
func TestRoundTripperOfSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &script{answers: []string{"200"}}
		slow, fast := limiterOf(t, hybrid.PerSecond(10)), limiterOf(t, hybrid.PerSecond(1000))
		transport := httplimit.RoundTripper(fast, pathKey, next, httplimit.Also(slow, httplimit.OneKey),
			httplimit.Cost(func(r *http.Request) int64 { return r.ContentLength }))
		from := time.Now()
		for range 5 {
			_, err := transport.RoundTrip(request(t, "PUT", "/", func(r *http.Request) { r.ContentLength = 10 }))
			noErr(t, err)
		}
		took := time.Since(from)
		check(t, took >= 4*time.Second && took < 4200*time.Millisecond, "50 tokens of 10/s burst 10 took %v", took)
		check(t, fast.Stats().Admitted == 50 && slow.Stats().Admitted == 50, "%+v", fast.Stats())
	})
}

// A request that can never be sent, as it costs more than the burst or less than 0, fails at once and says
// why.
func TestRoundTripperRefusesWhatCanNeverBeSent(t *testing.T) {
	for length, want := range map[int64]error{11: hybrid.ErrExceedsBurst, -1: hybrid.ErrInvalidN} {
		synctest.Test(t, func(t *testing.T) {
			next, closed, from := &script{answers: []string{"200"}}, false, time.Now()
			transport := httplimit.RoundTripper(limiterOf(t, hybrid.PerSecond(10)), httplimit.OneKey, next,
				httplimit.Cost(func(r *http.Request) int64 { return r.ContentLength }))
			_, err := transport.RoundTrip(request(t, "PUT", "/", func(r *http.Request) {
				r.ContentLength, r.Body = length, &body{strings.NewReader(""), func() { closed = true }}
			}))
			check(t, errors.Is(err, want) && closed && len(next.sent) == 0 && time.Since(from) == 0,
				"%v, %q sent after %v", err, next.sent, time.Since(from))
		})
	}
}

// Given a server that limits and clients whose own limit is a quarter higher: they get all that the server
// gives, because all of them honour Retry-After, and of a hundred requests one at most is denied four times.
func TestRoundTripperAgainstAServerThatLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, lasts = 20, 60
		server := limiterOf(t, hybrid.PerSecond(rate))
		denials := atomic.Int64{}
		transport := inProcess{httplimit.Middleware(server, httplimit.OneKey, httplimit.OnLimit(
			func(w http.ResponseWriter, _ *http.Request, _ httplimit.Denial) {
				denials.Add(1)
				w.WriteHeader(http.StatusTooManyRequests)
			}))(&quiet{})}
		own := limiterOf(t, hybrid.PerSecond(rate*5/4))
		client := &http.Client{Transport: httplimit.RoundTripper(own, httplimit.OneKey, transport)}
		var served, failed atomic.Int64
		var all sync.WaitGroup
		begin := time.Now()
		for range 2 * rate {
			all.Go(func() {
				for time.Since(begin) < lasts*time.Second {
					answer, err := client.Get("http://service/")
					if err != nil {
						t.Error(err)
						return
					}
					_ = answer.Body.Close()
					if answer.StatusCode == http.StatusOK {
						served.Add(1)
					} else {
						failed.Add(1)
					}
				}
			})
		}
		all.Wait()
		got := float64(served.Load())
		t.Logf("%v served of %d, %d denials, %d given up", got, rate*lasts, denials.Load(), failed.Load())
		check(t, got >= .98*rate*lasts, "%v served of %d", got, rate*lasts)
		check(t, float64(failed.Load()) <= got/100, "%d requests were denied four times", failed.Load())
		check(t, float64(denials.Load()) <= got/2, "%d denials for %v that were served", denials.Load(), got)
	})
}
