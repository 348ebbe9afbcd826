package lease

import (
	"fmt"

	"github.com/yuzhi-go/yuzhi/clock"
)

// ClientState says where a Client stands. The later ones go before the earlier ones where several
// apply.
type ClientState int8

const (
	StateActive   ClientState = iota // holds tokens
	StateLow                         // holds few: a prefetch is due
	StateDry                         // holds none: the next request waits for a call
	StateDenied                      // the bucket is known to have too little, so no call is made
	StateCold                        // no reply has ever come
	StateDegraded                    // the last call failed: Policy.Fallback decides
	StateLeaving                     // gives everything back
	StateClosed
)

// String is the state's name.
func (s ClientState) String() string {
	names := [...]string{"active", "low", "dry", "denied", "cold", "degraded", "leaving", "closed"}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("ClientState(%d)", int8(s))
	}
	return names[s]
}

// State says where c stands at now.
func (c *Client) State(now clock.Instant) ClientState {
	switch {
	case c.stage == closed:
		return StateClosed
	case c.stage == leaving:
		return StateLeaving
	case c.Degraded():
		return StateDegraded
	case !c.heard.replied:
		return StateCold
	case now < c.deniedUntil:
		return StateDenied
	case c.Pool.Held() == 0:
		return StateDry
	case c.low || c.tookLow.Load():
		return StateLow
	}
	return StateActive
}

// Closed reports whether c has been closed, or has left.
func (c *Client) Closed() bool { return c.stage == closed }
