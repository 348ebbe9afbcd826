package lease

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/violation"
)

// LimitsMax is the largest number of limits of one key.
const LimitsMax = 4

// ErrInvalidConfig is wrapped by every error about an invalid Config.
var ErrInvalidConfig = errors.New("lease: invalid configuration")

// Version orders configurations: the one with the higher Deploy wins, then the one with the higher Revision.
// Deploy comes with the program (hybrid.Config.Version). Revision counts changes made at run time: it is odd
// while limits are set, and even once they are cleared.
type Version struct {
	Deploy   int64
	Revision int64
}

// Config is stored with a bucket, so that all holders of a key use the same Config. Policy.ConfigFor makes a
// Config. Copies of a Config share Limits, which must not be changed.
type Config struct {
	Limits     []Limit       // 1 to LimitsMax; a request must fit into all of them
	Overcommit int64         // tokens by which level + ledger may exceed the Burst of each limit
	TTL        time.Duration // T: how long a holding is valid without renewal
	Target     time.Duration // intended duration of one lease at the observed demand
	StartEmpty bool          // a new bucket is empty, not full
	// CallsPerSecond is the number of calls per second that all holders together should make; 0 means the
	// default. See Policy.CallsPerSecond.
	CallsPerSecond int64
	Version        Version
}

// Validate reports every Violation in one error that wraps ErrInvalidConfig.
func (c Config) Validate() error {
	v := violation.List{Kind: ErrInvalidConfig}
	if n := len(c.Limits); n < 1 || n > LimitsMax {
		v.Add("Limits", c.Limits, "must have 1 to %d", LimitsMax)
	}
	for i, l := range c.Limits {
		here := fmt.Sprintf("Limits[%d]", i)
		v.Adopt(l.validateWith(c.Overcommit), func(path string) string {
			if path == "Overcommit" {
				return path
			}
			return violation.Under(here)(path)
		})
		if len(c.Limits) > 1 && (Unlimited.Equal(l) || Blocked.Equal(l)) {
			v.Add(here, l, "must be the only limit")
		}
	}
	violation.Between(&v, "Target", c.Target, time.Microsecond, exact.MaxTTL)
	if c.TTL < 2*c.Target || c.TTL > exact.MaxTTL {
		v.Add("TTL", c.TTL, "must be %v, two targets, to %v", 2*c.Target, exact.MaxTTL)
	}
	const wholeMicros = "must be whole microseconds, the resolution of the server's clock"
	if c.Target%time.Microsecond != 0 {
		v.Add("Target", c.Target, wholeMicros)
	}
	if c.TTL%time.Microsecond != 0 {
		v.Add("TTL", c.TTL, wholeMicros)
	}
	violation.Between(&v, "CallsPerSecond", c.CallsPerSecond, 0, callsMax)
	violation.Between(&v, "Version.Deploy", c.Version.Deploy, 0, exact.MaxUnits-1)
	violation.Between(&v, "Version.Revision", c.Version.Revision, 0, exact.MaxUnits-1)
	return v.Err()
}

// CallBudget returns the number of calls per second that all holders together should make.
func (c *Config) CallBudget() int64 { return cmp.Or(c.CallsPerSecond, defaultCalls) }

// WaitingMax bounds every token count of a Request: whole numbers must be exact in Lua.
const WaitingMax = exact.MaxUnits - 1

var (
	// ErrInvalidRequest is wrapped by every error about an invalid Request, which leaves the bucket
	// unchanged.
	ErrInvalidRequest = errors.New("lease: invalid request")
	// ErrStale answers a Request whose Seq is below one that the bucket has already executed for this holder.
	ErrStale = errors.New("lease: request is older than one already executed")
)

// Request is one lease call for one key: the holder's report and its demand. All counts are tokens. A Client
// builds a Request and never changes it: a retry carries the same content.
type Request struct {
	Holder string // the instance id
	Seq    int64  // number of the call; closes calls with a lower Seq
	Config Config // the holder's proposal; the stored Config wins over an equal or lower Version

	Remaining int64  // tokens still held when the request was built
	Returned  int64  // tokens given back; no longer in the pool
	Late      []Late // reports of tokens used or drawn earlier, at most LateMax of each kind, applied in this order
	Want      int64
	Need      int64 // least useful grant, at most Want; a smaller grant becomes 0
	Waiting   int64 // part of Want for requests that already wait: admitted at the moment of the grant
	Denied    int64 // tokens denied since the last report; informational
	Weight    int64 // share of a contended rate, 1 or more
	// Draw promises that the holder holds nothing, has no open call, returns nothing, wants exactly Waiting,
	// and never sends Seq again. A bucket without leases keeps no record of the holder; see docs/protocol.md
	// 4.1.
	Draw bool
	// Headroom is the part of every burst that a grant leaves in the bucket; see Policy.Headroom.
	Headroom float64

	// These facts of the last reply can prove that a bucket has lost its state; all are 0 before a reply.
	Epoch    int64
	Counter  int64
	LeaseMax time.Duration // Grant.LeaseMax, or Grant.Frozen if that is longer
	HeardAt  int64         // Grant.ServerTime
	HeardAge time.Duration // largest possible age of the last reply, by the holder's clock
	// HeardExpiry is Grant.Expiry: a bucket that is missing after that time has expired and is not lost.
	HeardExpiry time.Duration
}

// Validate rejects a request that could create tokens or break the arithmetic. The scripts check requests
// too.
func (r *Request) Validate() error {
	if r.Holder == "" {
		return violation.New(ErrInvalidRequest, "Holder", "", "must not be empty")
	}
	for _, f := range [...]struct {
		name  string
		value int64
		least int64
		most  int64
	}{
		{"Seq", r.Seq, 1, WaitingMax}, {"Remaining", r.Remaining, 0, WaitingMax},
		{"Returned", r.Returned, 0, WaitingMax},
		{"Want", r.Want, 0, WaitingMax}, {"Need", r.Need, 0, r.Want},
		{"Waiting", r.Waiting, 0, WaitingMax}, {"Denied", r.Denied, 0, WaitingMax},
		{"Weight", r.Weight, 1, weightMax},
		{"Epoch", r.Epoch, 0, WaitingMax}, {"Counter", r.Counter, 0, WaitingMax},
		{"LeaseMax", exact.Micros(r.LeaseMax), 0, exact.Micros(leaseMaxMost)},
		{"HeardAt", r.HeardAt, 0, WaitingMax},
		{"HeardAge", exact.Micros(r.HeardAge), 0, WaitingMax},
		{"HeardExpiry", exact.Micros(r.HeardExpiry), 0, WaitingMax},
	} {
		if f.value < f.least || f.value > f.most {
			return violation.New(ErrInvalidRequest, f.name, f.value, "must be %d to %d", f.least, f.most)
		}
	}
	if !(r.Headroom >= 0 && r.Headroom < 1) {
		return violation.New(ErrInvalidRequest, "Headroom", r.Headroom, "must be 0 to below 1")
	}
	back := func(l Late) bool { return l.Kind == LateUnused || l.Kind == LateRefund }
	if r.Draw && (r.Remaining|r.Returned != 0 || slices.ContainsFunc(r.Late, back) || r.Want != r.Waiting) {
		return violation.New(ErrInvalidRequest, "Draw", r.Draw, "needs Remaining (%d) and Returned (%d) to be 0, no "+
			"late tokens that come back, and Want (%d) to equal Waiting (%d)",
			r.Remaining, r.Returned, r.Want, r.Waiting)
	}
	return r.validateLate()
}

func (r *Request) validateLate() error {
	entries := [lateKinds]int{}
	for i, l := range r.Late {
		if l.Kind < 0 || l.Kind >= lateKinds {
			return violation.New(ErrInvalidRequest, fmt.Sprintf("Late[%d].Kind", i), l.Kind,
				"must be 0 to %d", lateKinds-1)
		}
		if l.Tokens < 1 || l.Tokens > WaitingMax || l.Drawn < 0 || l.Drawn > WaitingMax ||
			l.Age < 0 || exact.Micros(l.Age) > WaitingMax || l.Drawn > 0 && l.Age > 0 {
			return violation.New(ErrInvalidRequest, fmt.Sprintf("Late[%d]", i), nil,
				"has %d tokens, drawn at %d, age %v: must have at least 1 token, "+
					"and drawn or age must be 0; all must be below 2^52", l.Tokens, l.Drawn, l.Age)
		}
		if entries[l.Kind]++; entries[l.Kind] > LateMax {
			return violation.New(ErrInvalidRequest, "Late", r.Late,
				"must have at most %d of kind %d", LateMax, l.Kind)
		}
	}
	return nil
}

// Late reports tokens that a holder drew or used earlier: docs/protocol.md sections 5.8 and 5.10. A window
// counts late tokens at the time of their draw or use, if the window still covers that time.
type Late struct {
	Kind   LateKind
	Tokens int64
	// Drawn is Grant.Running of the oldest draw, for LateUnused and LateRefund.
	Drawn int64
	// Age is the least possible time since the latest use, for LateDebt and LateCharge.
	Age time.Duration
}

// LateKind says why tokens are reported late.
type LateKind int8

// LateMax is the largest number of entries of each kind in a Request.
const LateMax = 16

// The kinds of Late.
const (
	LateUnused LateKind = iota // drawn for requests that were then not admitted
	LateRefund                 // admitted but not used; credited when the bucket executes the call
	LateDebt                   // admitted without tokens while the store was away; lowers no level below 0
	LateCharge                 // used beyond the reservation; owed even if no level has the tokens
	lateKinds
)

// Status is the part of a Grant and of a State that describes the bucket.
type Status struct {
	Config  Config // configuration in force
	Epoch   int64
	Counter int64
	// Levels are the whole tokens left in the bucket, per limit; in a Grant less the caller's headroom. Next
	// is the time until a level has one more token without further draws; 0 for a full level.
	Levels       [LimitsMax]int64
	Next         [LimitsMax]time.Duration
	Ledger       int64 // tokens held by processes, by their last reports
	ActiveWeight int64 // sum of the weights of holders that called within TTL, and of a Grant's holder
	ServerTime   int64 // microseconds since 1970 on the server
}

// Grant is the bucket's answer to one Request.
type Grant struct {
	Status
	Seq     int64
	Granted int64 // tokens drawn, including those for waiting requests
	Waited  int64 // the part of Granted that went to waiting requests
	// Void reports that the bucket does not know the holder's report: the holder burns everything held before
	// this grant.
	Void       bool
	Delay      time.Duration // after a grant below Want: time until a call may get more; otherwise 0
	RetryAfter time.Duration // time until Need tokens (at least 1) can exist; 0 if they exist
	Contended  bool          // a holder asked for more than the level while others held tokens
	Expiry     time.Duration // how long the bucket is remembered without a call
	LeaseMax   time.Duration // longest remaining time of any lease of this bucket
	Frozen     time.Duration // how long the freeze after a loss still lasts; 0 for none
	Target     time.Duration // Target in force: Config.Target, or longer for the budget of Config.CallsPerSecond
	Running    int64         // the bucket's running time at the draw; a retry gets the same time
}

// State is the result of Store.Configure.
type State struct {
	Status
	Exists  bool
	Changed bool // the operation changed something
	// Spent and Denied are the tokens admitted and denied since the bucket was created, as processes reported
	// them. Spent and Denied are informational, and wrap to 0 after 2^48 - 1. Tokens that a request got while
	// it waited and then gave back stay in Spent.
	Spent  int64
	Denied int64
}

// Op is an operation of Store.Configure.
type Op int

const (
	// OpInspect only reads, and creates nothing.
	OpInspect Op = iota
	// OpSet stores Config.Limits with the next odd revision. Holders use the new limits from their next reply
	// on.
	OpSet
	// OpReset sets the level to that of a new bucket and keeps the configuration. Leased tokens stay leased.
	OpReset
	// OpReplace is OpSet followed by OpReset: no earlier use counts any more.
	OpReplace
	// OpClear stores Config.Limits, the limits that the program proposes, with the next even revision.
	// OpClear changes nothing if no limits are set.
	OpClear
)

// String returns the operation's name in the documentation.
func (op Op) String() string {
	return nameOf("Op", int(op), "inspect", "set", "reset", "replace", "clear")
}
