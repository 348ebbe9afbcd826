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

// nameMax bounds Config.Name, so that a stored key is not much longer than the key.
const nameMax = 64

// nameMark begins the stored key of every key of a Limiter with a name, and nameEnd ends the name.
const nameMark, nameEnd = "@", ":"

// isName reports whether name can be a Config.Name, which no log, metric or Redis key has to escape.
func isName(name string) bool {
	foreign := func(r rune) bool {
		return !('A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' ||
			strings.ContainsRune("_.-", r))
	}
	return len(name) <= nameMax && !strings.ContainsFunc(name, foreign)
}

// storedKey is the key under which the store has the bucket of the key that the table of a Limiter
// knows as name. Different names of Limiters and different keys have different ones, for any bytes:
// a Limiter without a name leaves a key as it is, unless that begins like those of one with a name.
func storedKey(limiter, name string) string {
	if limiter == "" && !strings.HasPrefix(name, nameMark) {
		return name
	}
	prefix := nameMark + limiter + nameEnd
	if len(prefix)+len(name) > lease.KeyMax {
		name = keyhash.Of(name) // or the store would hash all of it, as it hashes a long key without a name
	}
	return prefix + name
}

// identity is equal for Limiters that share their buckets and their configuration's version.
type identity struct {
	store   any
	name    string
	version int64
}

// storeIdentity is equal for Stores whose buckets are the same, as far as is known: of Redis those
// of one client and prefix, of which a program may have several.
func storeIdentity(store Store) any {
	id := any(store)
	if s, ok := store.(lease.Identifier); ok {
		id = s.Identity()
	}
	return identityOf(id)
}

// identityOf returns id, or an identity that nothing else has if values of its type cannot be compared.
func identityOf(id any) any {
	if !reflect.ValueOf(id).Comparable() {
		return new(byte)
	}
	return id
}

// opened are the open Limiters: what those of one identity propose, and how many they are.
var opened = struct {
	sync.Mutex
	by map[identity]*proposers
}{by: make(map[identity]*proposers)}

type proposers struct {
	proposed lease.Config
	limiters int
}

// register enters a Limiter, which proposes want, among the open ones. It refuses one that shares
// its buckets with another and contradicts it: chance would decide which configuration held.
func (id identity) register(want lease.Config) error {
	opened.Lock()
	defer opened.Unlock()
	p := opened.by[id]
	if p == nil {
		p = &proposers{proposed: want}
		opened.by[id] = p
	}
	have := p.proposed
	if !sameBucket(have, want) {
		return fmt.Errorf("%w: another open Limiter of this Store has Name %q and Version %d, but other "+
			"settings: limits %v, Overcommit %d, Target %v, StartEmpty %t; this one has %v, %d, %v, %t; "+
			"use another Name, close the other Limiter, or raise Version",
			ErrInvalidConfig, id.name, id.version, have.Limits, have.Overcommit, have.Target, have.StartEmpty,
			want.Limits, want.Overcommit, want.Target, want.StartEmpty)
	}
	p.limiters++
	return nil
}

// sameBucket reports whether a bucket does the same under both configurations.
func sameBucket(c, o lease.Config) bool {
	return slices.EqualFunc(c.Limits, o.Limits, Limit.Equal) && c.Overcommit == o.Overcommit &&
		c.Target == o.Target && c.StartEmpty == o.StartEmpty
}

func (id identity) unregister() {
	opened.Lock()
	defer opened.Unlock()
	p := opened.by[id]
	if p.limiters--; p.limiters == 0 {
		delete(opened.by, id)
	}
}
