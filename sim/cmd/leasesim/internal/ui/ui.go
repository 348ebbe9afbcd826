// Package ui serves the page of "leasesim ui" to the browsers of this machine: knobs, and the results of
// simulations. The binary contains all files of the page.
//
// Two rules keep other pages of the same browser out. A request must have this server's address as its Host,
// which stops DNS rebinding. A request for a simulation must have a secret token, which only the page knows.
package ui

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

var (
	//go:embed page.html
	pageSource string
	//go:embed page.css
	ownStyle string
	//go:embed page.js
	ownScript string

	page = template.Must(template.New("page").Parse(pageSource))
)

// policy lets a browser load only files of this server, and a data: image, which is the page's empty icon.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Serve serves the page on a port of 127.0.0.1. Port 0 selects a free port. Serve calls ready with the page's
// address. The end of ctx ends all simulations and Serve.
func Serve(ctx context.Context, port int, ready func(url string)) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	_, bound, _ := net.SplitHostPort(listener.Addr().String())
	s := &server{token: rand.Text(), hosts: []string{"127.0.0.1:" + bound, "localhost:" + bound}}
	h := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { h.Close() })
	defer stop()
	ready("http://" + s.hosts[0] + "/")
	if err := h.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type server struct {
	token string
	hosts []string // allowed Host headers
	pace  pace
}

func (s *server) handler() http.Handler {
	m := http.NewServeMux()
	text := func(path, kind, text string) {
		m.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind+"; charset=utf-8")
			fmt.Fprint(w, text)
		})
	}
	text("/page.css", "text/css", view.Style+ownStyle)
	text("/charts.js", "text/javascript", view.Script)
	text("/page.js", "text/javascript", ownScript)
	m.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = page.Execute(w, map[string]any{"Token": s.token, "Sections": sections}) // fails if the browser disconnects
	})
	m.HandleFunc("POST /simulate", s.secret(func(a *answer, r *http.Request) error { return a.run(r.Context()) }))
	m.HandleFunc("POST /plan", s.secret(func(a *answer, r *http.Request) error {
		var most sim.Ratio
		if most.UnmarshalText([]byte(r.Header.Get("X-Wrong")+"%")) == nil && most > 0 && most < 1 {
			return a.plan(r.Context(), most)
		}
		a.tell(event{Kind: "wrong", Wrong: []wrong{{"wrong", "must be a percentage above 0 and below 100"}}})
		return nil
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			w.Header().Set(name, value)
		}
		if !slices.Contains(s.hosts, r.Host) {
			http.Error(w, "This page is at "+s.hosts[0]+".", http.StatusMisdirectedRequest)
			return
		}
		m.ServeHTTP(w, r)
	})
}

// secret returns a handler that rejects requests without the token. The handler reads the knobs from the
// query, and answers with the events of run, one per line.
func (s *server) secret(run func(a *answer, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Token")), []byte(s.token)) != 1 {
			http.Error(w, "the token is missing or wrong: load the page again", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		var mu sync.Mutex // any goroutine of a simulation reports progress
		lines, flush := json.NewEncoder(w), http.NewResponseController(w)
		a := &answer{read(r.URL.Query()), r.Header.Get("X-Anyway") != "", &s.pace, func(e event) {
			mu.Lock()
			defer mu.Unlock()
			if lines.Encode(e) == nil {
				flush.Flush()
			}
		}, false}
		if faults := a.validate(); len(faults) > 0 {
			a.tell(event{Kind: "wrong", Wrong: faults})
			return
		}
		if err := run(a, r); err != nil && !errors.Is(err, sim.ErrInterrupted) {
			a.tell(event{Kind: "failed", Text: err.Error()})
		}
	}
}

// pace is the measured speed of simulations on this machine.
type pace struct {
	perSecond atomic.Int64 // requests simulated per second, 0 before the first measurement
}

// paceAtFirst is the assumed pace before the first measurement: the pace of a slow machine.
const paceAtFirst = 2_000_000

func (p *pace) learn(work float64, took time.Duration) {
	p.perSecond.Store(int64(work / max(took.Seconds(), 1e-3)))
}

func (p *pace) affords(within time.Duration) float64 {
	return float64(cmp.Or(p.perSecond.Load(), paceAtFirst)) * within.Seconds()
}

func (p *pace) needs(work float64) time.Duration {
	seconds := work / p.affords(time.Second)
	return time.Duration(min(seconds, 1e9) * float64(time.Second))
}
