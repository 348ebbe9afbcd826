package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// caller is one client of the load: its user name, its requests and their rate.
type caller struct {
	method, path string
	user         string        // with a %d, ever new users
	address      string        // as the load balancer would report it
	pause        time.Duration // between two of its requests
	polite       bool          // waits as long as Retry-After says
}

// mix returns the callers of the load: most users are within their limit, two are beyond it, one
// address hides behind ever new users, and some wait in line for a report.
func mix() (all []caller) {
	add := func(n, host int, c caller) {
		for i := range n {
			one := c
			one.user, one.address = fmt.Sprint(c.user, i), fmt.Sprint("198.51.100.", host+i)
			all = append(all, one)
		}
	}
	const ms = time.Millisecond
	add(8, 1, caller{method: "GET", path: "/items/17", user: "user-", pause: 250 * ms, polite: true})
	for range 3 { // three connections of the same user
		add(2, 50, caller{method: "POST", path: "/items", user: "heavy-", pause: 40 * ms, polite: true})
	}
	for range 5 {
		add(1, 66, caller{method: "GET", path: "/items/17", user: "made-up-%d-", pause: 10 * ms})
	}
	add(12, 80, caller{method: "POST", path: "/reports", user: "analyst-", pause: 300 * ms, polite: true})
	return all
}

// load sends requests to a few servers for a while, and counts the answers.
type load struct {
	client  *http.Client
	mu      sync.Mutex
	answers map[int]int // by status; 0: no answer
	failure error       // of the last request without an answer
}

// runLoad is the command: api load [flags] URL...
func runLoad(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	period := flags.Duration("for", 30*time.Second, "how long; at most 10m")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	targets := flags.Args()
	if len(targets) == 0 {
		return errors.New("load: no URL of a server")
	}
	transport := &http.Transport{DialContext: (&net.Dialer{Control: own}).DialContext}
	l := &load{client: &http.Client{Timeout: 5 * time.Second, Transport: transport}, answers: map[int]int{}}
	ctx, cancel := context.WithTimeout(ctx, min(*period, 10*time.Minute))
	defer cancel()
	var callers sync.WaitGroup
	for i, c := range mix() {
		callers.Go(func() { l.drive(ctx, c, targets[i%len(targets)]) })
	}
	callers.Wait()
	fmt.Fprintln(os.Stderr, "load: answers by status:", l.answers)
	if l.failure != nil {
		fmt.Fprintln(os.Stderr, "load: the last request without one:", l.failure)
	}
	return nil
}

// own refuses connections that leave this machine and its private network, so that the load never
// reaches a foreign server.
func own(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err == nil && !to.Addr().IsLoopback() && !to.Addr().IsPrivate() {
		err = fmt.Errorf("load: %s is neither loopback nor private", address)
	}
	return err
}

// drive sends the requests of one caller, one after the other.
func (l *load) drive(ctx context.Context, c caller, target string) {
	for n := 0; ctx.Err() == nil; n++ {
		status, retryAfter, err := l.send(ctx, c, n, target)
		if ctx.Err() != nil {
			return // the end of ctx cut this request off
		}
		wait := c.pause
		if c.polite && retryAfter > 0 {
			wait = retryAfter
		}
		l.mu.Lock()
		l.answers[status]++
		l.failure = cmp.Or(err, l.failure)
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (l *load) send(
	ctx context.Context, c caller, n int, target string,
) (status int, retryAfter time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, c.method, target+c.path, nil)
	if err != nil {
		return 0, 0, err
	}
	r.Header.Set("X-User", strings.ReplaceAll(c.user, "%d", strconv.Itoa(n%100)))
	r.Header.Set("X-Forwarded-For", c.address)
	response, err := l.client.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return response.StatusCode, time.Duration(seconds) * time.Second, nil
}
