// Command admin serves a page that shows the busiest keys of a Limiter, and on which an operator blocks a
// key, or sets or resets its limits. Run admin in the folder examples, with the Redis of the service and the
// name of the service's Limiter:
//
//	go run ./admin -name api
//
// The button "Back to the program's limits" puts -limits in force, so -limits must be the service's limits.
//
// The page has no login, so admin serves only a loopback address, which an operator reaches by "ssh -L".
// Pages of other sites cannot use the page: admin refuses a POST from another origin, a Host that is not a
// loopback name, and frames.
package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

func main() {
	address := flag.String("redis", "redis://localhost:6379?dial_timeout=500ms&read_timeout=500ms", "URL of Redis")
	name := flag.String("name", "", "hybrid.Config.Name of the Limiter")
	prefix := flag.String("prefix", "", "redisbucket.Config.Prefix of the Limiter's store")
	limits := flag.String("limits", "", "limits of the service, such as \"100/s, 5000/h\"")
	listen := flag.String("listen", "127.0.0.1:8088", "loopback address to serve")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	a := must(newAdmin(redis.NewClient(must(redis.ParseURL(*address))), *prefix, *name, *limits))
	log.Print("ping: ", a.limiter.Ping(ctx))
	at := must(netip.ParseAddrPort(*listen))
	if !at.Addr().IsLoopback() {
		log.Fatal("not a loopback address: ", at)
	}
	server := &http.Server{Addr: at.String(), Handler: a.handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() { log.Print(server.ListenAndServe()); stop() }()
	log.Print("serving at http://", at)
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	log.Print("shutdown: ", server.Shutdown(ending), ", tokens given back: ", a.limiter.Shutdown(ending))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

type admin struct {
	prefix  string // prefix of the keys in the store
	store   *redisbucket.Store
	limiter *hybrid.Limiter
	limits  []hybrid.Limit // limits of the service; nil if unknown
}

func newAdmin(client redis.UniversalClient, prefix, name, limits string) (*admin, error) {
	store, err := redisbucket.New(client, redisbucket.Config{Prefix: prefix})
	if err != nil {
		return nil, err
	}
	a := &admin{store: store}
	cfg := hybrid.Config{Name: name, Limits: []hybrid.Limit{hybrid.Unlimited}} // no request uses these limits
	if limits != "" {
		if a.limits, err = parse(limits); err != nil {
			return nil, err
		}
		cfg.Limits = a.limits
	}
	a.limiter, err = hybrid.New(store, cfg)
	if name != "" {
		a.prefix = "@" + name + ":"
	}
	return a, err
}

//go:embed page.html
var files embed.FS

var page = template.Must(template.ParseFS(files, "page.html"))

func (a *admin) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { a.show(w, r, "page.html", nil) })
	mux.HandleFunc("GET /use", func(w http.ResponseWriter, r *http.Request) { a.show(w, r, "use", nil) })
	mux.HandleFunc("GET /busiest", a.showBusiest)
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) {
		if err := a.change(r); err != nil {
			a.show(w, r, "page.html", err)
			return
		}
		http.Redirect(w, r, "/?key="+url.QueryEscape(r.FormValue("key")), http.StatusSeeOther)
	})
	sameOrigin := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if ip, _ := netip.ParseAddr(host); err != nil || host != "localhost" && !ip.IsLoopback() {
			http.Error(w, "not a loopback name: "+r.Host, http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'")
		sameOrigin.ServeHTTP(w, r)
	})
}

// change makes the change of the submitted form.
func (a *admin) change(r *http.Request) error {
	key := r.FormValue("key")
	switch r.FormValue("do") {
	case "block":
		return a.limiter.SetLimits(r.Context(), key, hybrid.Blocked)
	case "set":
		limits, err := parse(r.FormValue("limits"))
		if err != nil {
			return err
		}
		return a.limiter.SetLimits(r.Context(), key, limits...)
	case "clear":
		if a.limits == nil {
			return errors.New("the limits of the service are unknown: start admin with -limits")
		}
		return a.limiter.ClearLimits(r.Context(), key)
	case "reset":
		return a.limiter.Reset(r.Context(), key)
	}
	return fmt.Errorf("do is %q, must be block, set, clear or reset", r.FormValue("do"))
}

func parse(text string) (limits []hybrid.Limit, err error) {
	for part := range strings.SplitSeq(text, ",") {
		limit, err := hybrid.ParseLimit(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		limits = append(limits, limit)
	}
	return limits, nil
}

// use is the data of a template.
type use struct {
	Key, Limits   string
	Exists        bool
	Rows          []row // a row for each limit
	Leased        int64 // tokens that processes hold
	Spent, Denied int64 // tokens since the creation of the bucket
	Err           error
}

type row struct {
	Limit string
	Use   []int64 // tokens: capacity, used, left; empty for Blocked and Unlimited
}

// show executes the template called name for the key of r. failed is the error of a change, or nil.
func (a *admin) show(w http.ResponseWriter, r *http.Request, name string, failed error) {
	u := use{Key: r.FormValue("key"), Err: failed}
	status := http.StatusOK
	if failed != nil {
		status = http.StatusBadRequest
	}
	if u.Key != "" {
		st, err := a.store.Inspect(r.Context(), a.prefix+u.Key)
		u.Err, u.Exists = cmp.Or(u.Err, err), st.Exists
		u.Leased, u.Spent, u.Denied = st.Ledger, st.Spent, st.Denied
		var texts []string
		for i, limit := range st.Config.Limits {
			one, left := row{Limit: limit.String()}, st.Levels[i]
			if !limit.Equal(hybrid.Blocked) && !limit.Equal(hybrid.Unlimited) {
				one.Use = []int64{limit.Capacity(), limit.Capacity() - left, left}
			}
			u.Rows, texts = append(u.Rows, one), append(texts, one.Limit)
		}
		u.Limits = strings.Join(texts, ", ")
	}
	execute(w, name, status, u)
}

type busy struct {
	redisbucket.KeyUse
	Left []string // tokens left of each limit
}

// showBusiest counts the tokens that keys use in two seconds, and writes the list of the busiest keys.
func (a *admin) showBusiest(w http.ResponseWriter, r *http.Request) {
	found, err := a.store.Busiest(r.Context(), redisbucket.BusiestOptions{Prefix: a.prefix, Count: 10})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	var keys []busy
	for _, k := range found.Keys {
		one := busy{KeyUse: k}
		one.Key = strings.TrimPrefix(k.Key, a.prefix)
		for i, limit := range k.Limits {
			one.Left = append(one.Left, fmt.Sprintf("%d of %v", k.Levels[i], limit))
		}
		keys = append(keys, one)
	}
	execute(w, "busiest", http.StatusOK, keys)
}

func execute(w http.ResponseWriter, name string, status int, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if err := page.ExecuteTemplate(w, name, data); err != nil {
		log.Print(err)
	}
}
