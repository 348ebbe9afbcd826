package lease

import (
	"fmt"
	"strings"
)

// tell says in words what e is, before it happens.
func (w *world) tell(e event) string {
	name := modelIDs[e.holder]
	h := &w.holders[e.holder]
	what := func() string {
		m := h.messages[e.arg]
		if m.reply {
			return fmt.Sprintf("the reply to %s's seq %d (granted %d, void %v)", name, m.grant.Seq, m.grant.Granted, m.grant.Void)
		}
		return fmt.Sprintf("%s's seq %d (remaining %d, returned %d, refund %d)", name, m.request.Seq, m.request.Remaining, m.request.Returned, m.request.Refund)
	}
	switch e.kind {
	case eventTick:
		return duration(max(w.tick, 1)).String() + " passes"
	case eventOpen:
		return name + [...]string{" asks for tokens", " asks for a request that waits", " gives back", " gives one back and asks", " asks for a request that will have gone"}[e.arg]
	case eventResend:
		return name + " sends its call again"
	case eventTake:
		return name + " spends a token"
	case eventRefund:
		return name + " refunds a token"
	case eventDeliver:
		return "arrives: " + what()
	case eventDeliverTwice:
		return "arrives, and may again: " + what()
	case eventLose:
		return "is lost: " + what()
	case eventSetLimits:
		return "other limits are set"
	case eventRestart:
		return name + " restarts"
	case eventEvict:
		return name + "'s record is evicted"
	case eventFlush:
		return "the bucket is lost"
	default:
		return "T changes"
	}
}

// sketch is the state after an event, in one line.
func (w *world) sketch() string {
	var b strings.Builder
	fmt.Fprintf(&b, "level %d/%d ledger %d X %d |", w.bucket.state.level[0], w.unit, w.bucket.state.ring.ledger(), w.x)
	for i := range w.holders {
		h := &w.holders[i]
		left := max(0, h.deadline.Sub(w.instant()))
		fmt.Fprintf(&b, " %s has %d for %v", modelIDs[i], h.Pool.Held(), left)
	}
	return b.String()
}
