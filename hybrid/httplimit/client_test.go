package httplimit_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// inProcess sends requests to a handler, and its answers back.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result(), nil
}

// Clients that honour Retry-After ask for 2 to 10 times a limit. In the long run the admitted requests are
// within 2 % of the limit, and never above it. There is no storm: Retry-After is at least a second, so a
// client is denied at most once a second, and at a load of ten there are at most 10 denials for each
// admitted request.
func TestClientsThatHonourRetryAfterGetTheLimit(t *testing.T) {
	const rate, lasts = 50, 60
	limit := hybrid.PerSecond(rate)
	loads := testkit.PlainOrRace([]int{2, 5, 10}, []int{2})
	if !testkit.Long(t, "twice the limit", "up to ten times the limit") {
		loads = loads[:1]
	}
	for _, load := range loads {
		t.Run(fmt.Sprintf("load %d", load), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(nil)
				var processes []inProcess
				for range 2 { // processes
					l := limiterOn(t, &struct{ lease.Store }{store}, hybrid.Config{Limits: []hybrid.Limit{limit}})
					processes = append(processes, inProcess{httplimit.Middleware(l, httplimit.OneKey)(&quiet{})})
				}
				var admitted, denied atomic.Int64
				var clients sync.WaitGroup
				begin, seed := time.Now(), testkit.Seed(t)
				for i := range load * rate {
					clients.Go(func() {
						rng := rand.New(rand.NewPCG(seed, uint64(i)))
						time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
						client := &http.Client{Transport: processes[i%len(processes)]}
						for time.Since(begin) < lasts*time.Second {
							answer, err := client.Get("http://service/")
							if err != nil {
								t.Error(err)
								return
							}
							if answer.StatusCode == http.StatusOK {
								admitted.Add(1)
								time.Sleep(time.Duration(rng.Int64N(2 * int64(time.Second)))) // on average once a second
								continue
							}
							denied.Add(1)
							seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
							check(t, err == nil && seconds >= 1, "%d %v", answer.StatusCode, answer.Header)
							time.Sleep(time.Duration(seconds) * time.Second)
						}
					})
				}
				clients.Wait()
				took := time.Since(begin).Seconds()
				most := float64(limit.Capacity()) + rate*took
				got, perAdmission := float64(admitted.Load()), float64(denied.Load())/float64(admitted.Load())
				t.Logf("admitted %.4f of %.0f, %.2f denials each", got/most, most, perAdmission)
				check(t, got <= most, "%v admitted, the limit is %v", got, most)
				steady := got - float64(limit.Capacity())
				check(t, steady >= .98*rate*lasts, "%v admitted above the burst, of %d", steady, rate*lasts)
				check(t, perAdmission <= float64(load), "%v denials for each admission", perAdmission)
			})
		})
	}
}

// quiet does nothing.
type quiet struct{}

func (*quiet) ServeHTTP(http.ResponseWriter, *http.Request) {}
