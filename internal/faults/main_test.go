//go:build unix

package faults

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// ordersVariable carries a child's orders; a process that finds it set is a child.
const ordersVariable = "YUZHI_FAULTS_PROCESS"

// orders are what a test tells one child process.
type orders struct {
	Role        string // one of roles
	Redis       string
	Record      string // path of the file of stamps
	Limit       hybrid.Limit
	Policy      hybrid.Policy
	CallTimeout time.Duration
	Offered     float64 // requests a second
}

// roles are what a child can be. Each starts with a Limiter on the server, says and hears lines,
// and returns when it is done.
var roles = map[string]func(*child) error{
	"load":    loadRole,
	"hold":    holdRole,
	"starved": starvedRole,
}

func TestMain(m *testing.M) {
	text := os.Getenv(ordersVariable)
	if text == "" {
		flag.Parse()
		// Most tests wait for servers, so more of them run at once than there are processors.
		_ = flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0))))
		os.Exit(m.Run())
	}
	if err := beChild(text); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(3)
	}
}

// child is this process, where it was started as one of a fleet.
type child struct {
	orders
	in     *bufio.Scanner
	record *stampRecord
	store  *tap
}

// beChild ends with its orders, or with the parent: then there is nothing more to hear.
func beChild(text string) error {
	c := &child{in: bufio.NewScanner(os.Stdin)}
	if err := json.Unmarshal([]byte(text), &c.orders); err != nil {
		return err
	}
	var err error
	if c.record, err = openRecord(c.Record); err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: c.Redis})
	defer rdb.Close()
	store, err := redisbucket.New(rdb, redisbucket.Config{})
	if err != nil {
		return err
	}
	c.store = &tap{Store: store}
	return roles[c.Role](c)
}

// say tells the parent one line.
func (c *child) say(word string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s %s\n", word, text)
	return err
}

// hear waits for the parent to say word.
func (c *child) hear(word string) error {
	if !c.in.Scan() {
		return fmt.Errorf("the parent has gone: %w", c.in.Err())
	}
	if c.in.Text() != word {
		return fmt.Errorf("the parent said %q instead of %q", c.in.Text(), word)
	}
	return nil
}

// config is what the tests' processes are configured with. The bound is promised for FallbackDeny.
func (o orders) config() hybrid.Config {
	p := o.Policy
	p.Fallback = hybrid.FallbackDeny
	return hybrid.Config{Limits: []hybrid.Limit{o.Limit}, Policy: p, CallTimeout: o.CallTimeout}
}

// ttl is T as the processes propose it.
func (o orders) ttl() time.Duration {
	return o.Policy.ConfigFor([]lease.Limit{o.Limit}, 0, o.CallTimeout).TTL
}
