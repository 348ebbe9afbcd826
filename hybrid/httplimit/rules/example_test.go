package rules_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// orders is an application.
var orders = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "your orders") })

// asked is the status of the answer to a request.
func asked(h http.Handler, path string) int {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("X-User", "ann")
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer.Code
}

func ExampleOpen() {
	folder, _ := os.MkdirTemp("", "rules")
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "rules.yaml")
	_ = os.WriteFile(file, []byte(`
rules:
  everybody: {key: all, limits: [1000/s]}
  user: {key: "header:X-User", limits: [10/m]}
routes:
  GET /orders/{id}: {rules: [everybody, user]}
  GET /orders/export: {cost: 10, rules: [everybody, user]}
`), 0o600)

	store := memory.New(nil) // in production redisbucket.New(client, redisbucket.Config{})
	declared, err := rules.Open(file, rules.Config{Store: store, Base: hybrid.Config{CallTimeout: time.Minute}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer declared.Close()
	app := declared.Handler(orders)
	fmt.Println(asked(app, "/orders/export"), asked(app, "/orders/17"), asked(app, "/healthz"))
	// Output: 200 429 200
}

// A table from Go, with a key form of the program. New reports all of its mistakes.
func ExampleNew() {
	plan := func(r *http.Request) (string, error) { return "free", nil } // as your accounts say
	cfg := rules.Config{
		Store: memory.New(nil),
		Base:  hybrid.Config{CallTimeout: time.Minute},
		Keys:  map[string]httplimit.KeyFunc{"plan": plan},
	}
	table := rules.Table{
		Rules: map[string]rules.Rule{
			"plan": {Key: []string{"plan"}, Limits: []hybrid.Limit{hybrid.PerMinute(2)}},
		},
		Routes: map[string]rules.Route{
			"/":       {Rules: []string{"plan"}},
			"/export": {Rules: []string{"plans"}, Cost: 3},
		},
	}
	_, err := rules.New(table, cfg)
	fmt.Println(err)

	table.Routes["/export"] = rules.Route{Rules: []string{"plan"}, Cost: 2}
	declared, _ := rules.New(table, cfg)
	defer declared.Close()
	app := declared.Handler(orders)
	fmt.Println(asked(app, "/export"), asked(app, "/"))
	// Output:
	// rules: invalid rules: routes["/export"].rules[0] is "plans", must be one of the rules (plan)
	// 200 429
}
