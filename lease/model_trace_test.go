package lease

import (
	"fmt"
	"strings"
)

var eventTexts = [...]string{
	eventTick: "time passes", eventOpen: "asks ", eventResend: "sends its call again",
	eventTake:   "spends a token",
	eventRefund: "refunds a token", eventDeliver: "arrives: ", eventDeliverTwice: "arrives, and may again: ",
	eventLose: "is lost: ", eventEvict: "its record is evicted", eventFlush: "the bucket is lost",
	eventSetTTL: "T changes", eventSetLimits: "other limits are set", eventRestart: "restarts",
}

var askTexts = [...]string{
	askTokens: "for tokens", askWaiting: "for a request that waits", askBack: "for nothing, and gives back",
	askBackAndTokens: "for tokens, and gives one back", askGone: "for a request that will have gone",
}

// tell says in words what e is, before it happens.
func (w *world) tell(e event) string {
	h, text := &w.holders[e.holder], modelIDs[e.holder]+" "+eventTexts[e.kind]
	switch e.kind {
	case eventOpen:
		text += askTexts[e.arg]
	case eventDeliver, eventDeliverTwice, eventLose:
		m := h.messages[e.arg]
		text += fmt.Sprintf("seq %d (remaining %d, returned %d, refund %d)",
			m.request.Seq, m.request.Remaining, m.request.Returned, m.request.Refund)
		if m.reply {
			text += fmt.Sprintf(", its reply (granted %d, void %v)", m.grant.Granted, m.grant.Void)
		}
	}
	return text
}

// sketch is the state after an event, in one line.
func (w *world) sketch() string {
	var b strings.Builder
	fmt.Fprintf(&b, "level %d/%d ledger %d X %d |", w.bucket.state.level[0], w.unit,
		w.bucket.state.ring.ledger(), w.x)
	for i := range w.holders {
		h := &w.holders[i]
		left := max(0, h.deadline.Sub(w.instant()))
		fmt.Fprintf(&b, " %s has %d for %v", modelIDs[i], h.Pool.Held(), left)
	}
	return b.String()
}
