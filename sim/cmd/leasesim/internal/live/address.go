package live

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// silentFor is how long one try to reach a server may take.
const silentFor = 3 * time.Second

// newClient is a client for what --redis says: host:port of one server, or a URL as go-redis parses
// it, whose scheme tells one server (redis, rediss, unix) from a cluster and from Sentinel
// (+cluster, +sentinel; rediss for TLS). Errors do not repeat the address, which may hold a
// password.
func newClient(address string) (redis.UniversalClient, error) {
	if !strings.Contains(address, "://") {
		if !strings.Contains(address, ":") {
			return nil, fmt.Errorf("%q is neither host:port nor a URL", address)
		}
		address = "redis://" + address
	}
	scheme, rest, _ := strings.Cut(address, "://")
	plain, kind, _ := strings.Cut(scheme, "+")
	var rdb redis.UniversalClient
	var err error
	switch kind {
	case "":
		var o *redis.Options
		if o, err = redis.ParseURL(address); err == nil {
			o.DialTimeout, o.ContextTimeoutEnabled = silentFor, true
			rdb = redis.NewClient(o)
		}
	case "cluster":
		var o *redis.ClusterOptions
		if o, err = redis.ParseClusterURL(plain + "://" + rest); err == nil {
			o.DialTimeout, o.ContextTimeoutEnabled = silentFor, true
			rdb = redis.NewClusterClient(o)
		}
	case "sentinel":
		var o *redis.FailoverOptions
		if o, err = redis.ParseFailoverURL(plain + "://" + rest); err == nil && o.MasterName == "" {
			err = errors.New("a Sentinel is asked for a master by its name, as ?master_name=NAME")
		}
		if err == nil {
			o.DialTimeout, o.ContextTimeoutEnabled = silentFor, true
			rdb = redis.NewFailoverClient(o)
		}
	default:
		err = fmt.Errorf("the scheme is %q, must be redis, rediss, unix, "+
			"or the first two with +cluster or +sentinel", scheme)
	}
	var where *url.Error
	if errors.As(err, &where) {
		err = where.Err // without the password
	}
	return rdb, err
}

// shown is address for people: without a password.
func shown(address string) string {
	if u, err := url.Parse(address); err == nil && u.User != nil {
		return u.Redacted()
	}
	return address
}
