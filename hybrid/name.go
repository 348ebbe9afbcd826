package hybrid

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/yuzhi-go/yuzhi/internal/keyhash"
	"github.com/yuzhi-go/yuzhi/lease"
)

// nameMax bounds Config.Name, to keep stored keys short.
const nameMax = 64

// nameMark begins the stored keys of a Limiter with a name; nameEnd follows the Limiter's name.
const nameMark, nameEnd = "@", ":"

// isName reports whether name is a valid Config.Name. No log, metric or Redis key has to escape a valid name.
func isName(name string) bool {
	foreign := func(r rune) bool {
		return !('A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' ||
			strings.ContainsRune("_.-", r))
	}
	return len(name) <= nameMax && !strings.ContainsFunc(name, foreign)
}

// storedKey returns the store's key of the bucket for name, a key in the table of a Limiter named limiter.
// Different pairs of Limiter and key always have different stored keys. A Limiter without a name stores a key
// unchanged, unless the key begins with nameMark.
func storedKey(limiter, name string) string {
	if limiter == "" && !strings.HasPrefix(name, nameMark) {
		return name
	}
	prefix := nameMark + limiter + nameEnd
	if len(prefix)+len(name) > lease.KeyMax {
		name = keyhash.Of(name) // hash only the name, as the store would hash the prefix too
	}
	return prefix + name
}

// identity identifies the buckets of a Limiter and the version of its configuration.
type identity struct {
	store   any
	name    string
	version int64
}

// storeIdentity returns equal values for Stores that are known to share their buckets, such as two
// redisbucket.Stores with one client and prefix.
func storeIdentity(store Store) any {
	id := any(store)
	if s, ok := store.(lease.Identifier); ok {
		id = s.Identity()
	}
	return identityOf(id)
}

// identityOf returns id, or a unique value if the type of id is not comparable.
func identityOf(id any) any {
	if !reflect.ValueOf(id).Comparable() {
		return new(byte)
	}
	return id
}

var openLimiters = struct {
	sync.Mutex
	byIdentity map[identity]*proposers
}{byIdentity: make(map[identity]*proposers)}

type proposers struct {
	proposed lease.Config
	limiters int
}

// register records an open Limiter and its proposed configuration. register refuses a Limiter that shares
// buckets with an open Limiter and proposes other settings: chance would decide which settings are in force.
func (id identity) register(proposed lease.Config) error {
	openLimiters.Lock()
	defer openLimiters.Unlock()
	p := openLimiters.byIdentity[id]
	if p == nil {
		p = &proposers{proposed: proposed}
		openLimiters.byIdentity[id] = p
	}
	have := p.proposed
	if !sameBucket(have, proposed) {
		return fmt.Errorf("%w: another open Limiter of this Store has Name %q and Version %d, but other "+
			"settings: limits %v, Overcommit %d, Target %v, StartEmpty %t; this one has %v, %d, %v, %t; "+
			"use another Name, close the other Limiter, or raise Version",
			ErrInvalidConfig, id.name, id.version, have.Limits, have.Overcommit, have.Target, have.StartEmpty,
			proposed.Limits, proposed.Overcommit, proposed.Target, proposed.StartEmpty)
	}
	p.limiters++
	return nil
}

// sameBucket reports whether the configurations c and o make a bucket behave alike.
func sameBucket(c, o lease.Config) bool {
	return slices.EqualFunc(c.Limits, o.Limits, Limit.Equal) && c.Overcommit == o.Overcommit &&
		c.Target == o.Target && c.StartEmpty == o.StartEmpty
}

func (id identity) unregister() {
	openLimiters.Lock()
	defer openLimiters.Unlock()
	p := openLimiters.byIdentity[id]
	if p.limiters--; p.limiters == 0 {
		delete(openLimiters.byIdentity, id)
	}
}
