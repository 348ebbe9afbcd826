package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// caller is one client of the load: its user name, its requests and their rate.
type caller struct {
	method, path string
	user         func(n int) string
	address      string        // as the load balancer would report it
	pause        time.Duration // between two of its requests
	polite       bool          // waits as long as Retry-After says
}

// always is the same user for every request.
func always(user string) func(int) string { return func(int) string { return user } }

// mix returns the callers of the load: most users are within their limit, two are beyond it, one
// address hides behind ever new users, and some wait in line for a report.
func mix() (all []caller) {
	for i := range 8 {
		all = append(all, caller{method: http.MethodGet, path: "/items/17", user: always(fmt.Sprint("user-", i)),
			address: fmt.Sprint("198.51.100.", i+1), pause: 250 * time.Millisecond, polite: true})
	}
	for i := range 2 {
		for range 3 { // three connections of the same user
			all = append(all, caller{method: http.MethodPost, path: "/items", user: always(fmt.Sprint("heavy-", i)),
				address: fmt.Sprint("198.51.100.", 50+i), pause: 40 * time.Millisecond, polite: true})
		}
	}
	for range 5 {
		all = append(all, caller{method: http.MethodGet, path: "/items/17", address: "203.0.113.66",
			user: func(n int) string { return fmt.Sprint("made-up-", n%100) }, pause: 10 * time.Millisecond})
	}
	for i := range 12 {
		all = append(all, caller{method: http.MethodPost, path: "/reports", user: always(fmt.Sprint("analyst-", i)),
			address: fmt.Sprint("198.51.100.", 80+i), pause: 300 * time.Millisecond, polite: true})
	}
	return all
}

// load sends requests to a few servers for a while, and counts the answers.
type load struct {
	client  *http.Client
	targets []string
	left    atomic.Int64 // requests that may still be sent
	mu      sync.Mutex
	answers map[int]int // by status; 0: no answer
}

// runLoad is the command: api load [flags] URL...
func runLoad(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	period := flags.Duration("for", 30*time.Second, "how long; at most 10m")
	most := flags.Int64("most", 50_000, "how many requests at most")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	l := &load{client: &http.Client{Timeout: 5 * time.Second}, targets: flags.Args(), answers: map[int]int{}}
	l.left.Store(*most)
	if len(l.targets) == 0 {
		return errors.New("load: no URL of a server")
	}
	for _, target := range l.targets {
		if err := own(target); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, min(*period, 10*time.Minute))
	defer cancel()
	var callers sync.WaitGroup
	for i, c := range mix() {
		callers.Go(func() { l.drive(ctx, c, l.targets[i%len(l.targets)]) })
	}
	callers.Wait()
	fmt.Fprintln(os.Stderr, "load: answers by status:", l.answers)
	return nil
}

// own returns an error unless target is on this machine or in a private network, so that the load
// never reaches a foreign server.
func own(target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	if u.Hostname() == "localhost" {
		return nil
	}
	found, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		addresses, err := net.LookupHost(u.Hostname())
		if err != nil {
			return err
		}
		if found, err = netip.ParseAddr(addresses[0]); err != nil {
			return err
		}
	}
	if !found.IsLoopback() && !found.IsPrivate() {
		return fmt.Errorf("load: %s is neither loopback nor private", target)
	}
	return nil
}

// drive sends the requests of one caller, one after the other.
func (l *load) drive(ctx context.Context, c caller, target string) {
	for n := 0; ctx.Err() == nil && l.left.Add(-1) >= 0; n++ {
		wait := c.pause
		status, retryAfter := l.send(ctx, c, n, target)
		if ctx.Err() != nil {
			return // the end of ctx cut this request off
		}
		if c.polite && retryAfter > 0 {
			wait = retryAfter
		}
		l.mu.Lock()
		l.answers[status]++
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (l *load) send(
	ctx context.Context, c caller, n int, target string,
) (status int, retryAfter time.Duration) {
	r, err := http.NewRequestWithContext(ctx, c.method, target+c.path, nil)
	if err != nil {
		return 0, 0
	}
	r.Header.Set("X-User", c.user(n))
	r.Header.Set("X-Forwarded-For", c.address)
	response, err := l.client.Do(r)
	if err != nil {
		return 0, 0
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return response.StatusCode, time.Duration(seconds) * time.Second
}
