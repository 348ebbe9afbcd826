package main

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/lease"
)

// TestServersShareThreeKeys: two servers share the tokens of each key, and a denied request takes none.
func TestServersShareThreeKeys(t *testing.T) {
	type six struct{ key, address, route, statuses string } // requests
	testnet.OnRedis(t, func(store func() lease.Store) error {
		for _, server := range [][]six{{
			{"secret-of-ann", "192.0.2.1", "orders", "map[200:6]"},
			{"secret-of-big", "192.0.2.1", "orders", "map[200:6]"},
			{"", "192.0.2.1", "report", "map[200:3 429:3]"}, // 3 on this route
			{"guessed", "192.0.2.1", "report", "map[401:6]"},
		}, {
			{"secret-of-ann", "192.0.2.2", "orders", "map[200:2 429:4]"}, // 8 on this route
			{"secret-of-ann", "192.0.2.2", "report", "map[200:2 429:4]"}, // 10: denied orders took none
			{"secret-of-big", "192.0.2.2", "orders", "map[200:6]"},
			{"secret-of-big", "192.0.2.2", "report", "map[200:6]"},
			{"secret-of-big", "192.0.2.2", "report", "map[429:6]"},       // 6 on this route, twice 3
			{"secret-of-big", "192.0.2.2", "orders", "map[200:2 429:4]"}, // 20: denied reports took none
			{"", "192.0.2.2, 192.0.2.1", "report", "map[429:6]"},         // the proxy appended the last
			{"", "192.0.2.1", "orders", "map[200:6]"},
			{"", "192.0.2.1", "orders", "map[200:1 429:5]"}, // 10: denied reports took none
			{"", "192.0.2.2", "orders", "map[200:5 429:1]"}, // 45 of all: denied requests took none
		}} {
			handler, limiters := open(store())
			for _, step := range server {
				statuses := map[int]int{}
				for range 6 {
					r, w := httptest.NewRequest("GET", "/"+step.route, nil), httptest.NewRecorder()
					r.RemoteAddr = "127.0.0.1:1"
					r.Header.Set("X-API-Key", step.key)
					r.Header.Set("X-Forwarded-For", step.address)
					handler.ServeHTTP(w, r)
					statuses[w.Code]++
				}
				if fmt.Sprint(statuses) != step.statuses {
					return fmt.Errorf("%v: %v", step, statuses)
				}
			}
			for _, limiter := range limiters { // a server holds tokens that the next one needs
				if err := limiter.Shutdown(t.Context()); err != nil {
					return err
				}
			}
		}
		_, limiters := open(store()) // the last request was denied by all, and took no token of the address
		if r, err := limiters["customer"].Peek(t.Context(), "1:192.0.2.2"); err != nil || r.Remaining != 5 {
			return fmt.Errorf("%+v, %v: want 5 of 10 left", r, err)
		}
		return nil
	})
}
