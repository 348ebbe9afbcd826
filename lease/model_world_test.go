package lease

import (
	"fmt"

	"github.com/yuzhi-go/yuzhi/clock"
)

// world is one state of a model: the real Bucket, the real Holdings, the messages between them, and the meter.
type world struct {
	model
	config  Config
	unit    int64 // of the bucket's levels, and of x
	step    int64
	now     int64
	bucket  Bucket
	lost    bool // the bucket was lost and nobody has called since
	holders [3]modelHolder
	x       int64 // the meter, see meter

	codec codec
}

type modelHolder struct {
	Holding
	refundable int64 // 1: it has admitted a token that may still be refunded
	messages   []modelMessage
}

// modelMessage is a request, or the reply to one, on its way.
type modelMessage struct {
	reply   bool
	request Request
	grant   Grant
}

var modelIDs = [...]string{"A", "B", "C"}

func newWorld(m model) *world {
	w := &world{model: m, now: codecNow}
	w.config = Config{Limits: []Limit{m.limit}, Overcommit: m.e, TTL: duration(m.ttl), Target: 1000}
	sc, err := newScale(m.limit, m.e)
	if err != nil || sc.tick != 1 {
		panic(fmt.Sprint(m.limit, sc, err))
	}
	w.unit, w.step = sc.unit, sc.step
	w.bucket.unfair = true
	w.bucket.variant = m.bucket
	for i := range w.holders {
		h := &w.holders[i]
		h.init(modelIDs[i], 0)
		h.variant = m.holding
	}
	w.codec.init(w)
	return w
}

func (w *world) instant() clock.Instant { return clock.Instant(w.now * 1000) }

// event is one thing that may happen.
type event struct {
	kind   eventKind
	holder uint8
	arg    uint8 // of an open: the kind of ask; of a message: its index
}

type eventKind uint8

const (
	eventTick eventKind = iota
	eventOpen
	eventResend
	eventTake
	eventRefund
	eventDeliver
	eventDeliverTwice // and it may arrive once more
	eventLose
	eventEvict
	eventFlush
	eventSetTTL
)

// Kinds of ask.
const (
	askTokens uint8 = iota
	askWaiting
	askBack
	askBackAndTokens
)

// events lists what can happen now.
func (w *world) events(to []event) []event {
	to = append(to, event{kind: eventTick})
	for i := range w.model.holders {
		h := &w.holders[i]
		at := uint8(i)
		room := len(h.messages) < w.inflight
		live := w.instant() < h.deadline && h.Pool.Held() > 0
		if room && (!h.isOpen || w.giveUp) {
			to = append(to, event{eventOpen, at, askTokens})
			if w.waiting {
				to = append(to, event{eventOpen, at, askWaiting})
			}
			if w.back && live {
				to = append(to, event{eventOpen, at, askBack}, event{eventOpen, at, askBackAndTokens})
			}
		}
		if room && w.retry && h.isOpen {
			to = append(to, event{eventResend, at, 0})
		}
		if live {
			to = append(to, event{eventTake, at, 0})
		}
		if w.refund && h.refundable > 0 && h.Holding.refund == 0 {
			to = append(to, event{eventRefund, at, 0})
		}
		for k := range h.messages {
			if w.deliverable(&h.messages[k]) {
				to = append(to, event{eventDeliver, at, uint8(k)})
				if w.twice && room {
					to = append(to, event{eventDeliverTwice, at, uint8(k)})
				}
			}
			if !w.lossless {
				to = append(to, event{eventLose, at, uint8(k)})
			}
		}
		if w.evict && w.bucket.records[modelIDs[i]] != nil {
			to = append(to, event{eventEvict, at, 0})
		}
	}
	if w.flush && w.bucket.state.exists {
		to = append(to, event{kind: eventFlush})
	}
	if w.ttl2 != 0 && w.bucket.state.exists {
		to = append(to, event{kind: eventSetTTL})
	}
	return to
}

// deliverable leaves out what the promise leaves out: after a loss, somebody who does not know of it calls first.
func (w *world) deliverable(m *modelMessage) bool {
	return m.reply || !w.lost || m.request.Epoch > 0
}

// apply makes e happen and says what is wrong afterwards.
func (w *world) apply(e event) (violation string) {
	h := &w.holders[e.holder]
	switch e.kind {
	case eventTick:
		w.now += max(w.tick, 1)
		w.x = max(0, w.x-w.step*max(w.tick, 1))
	case eventOpen:
		r := h.Open(w.instant(), w.codec.nextSeq(h), w.ask(e.arg))
		h.messages = append(h.messages, modelMessage{request: *r})
	case eventResend:
		if r := h.Resend(w.instant()); r != nil {
			h.messages = append(h.messages, modelMessage{request: *r})
		}
	case eventTake:
		h.Expire(w.instant())
		if h.Pool.Take().Ok() {
			w.x += w.unit
			h.refundable = 1
		}
	case eventRefund:
		h.refundable = 0
		h.Refund(1)
	case eventDeliver, eventDeliverTwice, eventLose:
		m := h.messages[e.arg]
		if e.kind != eventDeliverTwice {
			h.messages = append(h.messages[:e.arg:e.arg], h.messages[e.arg+1:]...)
		}
		if e.kind != eventLose {
			w.deliver(h, m)
		}
	case eventEvict:
		delete(w.bucket.records, h.id)
	case eventFlush:
		w.bucket = Bucket{unfair: true, variant: w.bucket.variant}
		w.lost = true
	case eventSetTTL:
		c := w.config
		c.TTL = duration(w.model.ttl + w.ttl2 - w.bucket.state.ttl)
		if _, err := w.bucket.Configure(w.now, OpSet, c); err != nil {
			return err.Error()
		}
	}
	return w.violation()
}

func (w *world) ask(kind uint8) Ask {
	a := Ask{Config: w.config, Want: w.want, Weight: 1}
	switch kind {
	case askWaiting:
		a.Waiting = 1
	case askBack:
		a.Want = 0
		a.Return = func(held int64) int64 { return held }
	case askBackAndTokens:
		a.Return = func(held int64) int64 { return min(held, 1) }
	}
	return a
}

func (w *world) deliver(h *modelHolder, m modelMessage) {
	if m.reply {
		got, ok := h.Accept(w.instant(), &m.grant, 0)
		if ok && got.Waited > 0 {
			h.refundable = 1
		}
		h.epochUntil = 1<<63 - 1 // the bucket is remembered until it is lost
		return
	}
	w.lost = false
	// Executing spends from the allowance, answering from the record does not: that tells them apart.
	const untouched = -5
	rec := w.bucket.records[h.id]
	if rec != nil {
		rec.debit.allowance = untouched
	}
	level := w.refunded(&m.request)
	if err := w.bucket.Call(w.now, &m.request, &m.grant); err != nil {
		return
	}
	if rec = w.bucket.records[h.id]; rec.debit.allowance != untouched {
		w.x = max(0, w.x-level)
		w.x += m.grant.Waited * w.unit
	}
	m.reply = true
	h.messages = append(h.messages, m)
}

// refunded is how much of a refund the bucket would credit now.
func (w *world) refunded(r *Request) int64 {
	if r.Refund == 0 {
		return 0
	}
	with, without := w.bucket.Clone(), w.bucket.Clone()
	a, b := *r, *r
	a.Want, a.Waiting, b.Want, b.Waiting, b.Refund = 0, 0, 0, 0, 0
	var g Grant
	if with.Call(w.now, &a, &g) != nil || without.Call(w.now, &b, &g) != nil {
		return 0
	}
	return with.state.level[0] - without.state.level[0]
}

// violation says which promise is broken now.
func (w *world) violation() string {
	total := (w.limit.Capacity() + w.e) * w.unit
	if w.x > total {
		return fmt.Sprintf("(1) is broken: the worst window admitted R*w + %d/%d tokens, B + E is %d/%d", w.x, w.unit, total, w.unit)
	}
	live := int64(0)
	for i := range w.model.holders {
		h := &w.holders[i]
		if !h.Account().Conserved() {
			return fmt.Sprintf("%s lost or forged tokens: %+v", modelIDs[i], h.Account())
		}
		if w.instant() < h.deadline {
			live += h.Pool.Held()
		}
	}
	// What follows is why (1) holds, not what it says; a variant is to be caught by what it admits.
	s := &w.bucket.state
	if w.model.bucket != asDesigned || w.holding != holdingAsDesigned || !s.exists || s.frozen > w.now {
		return ""
	}
	saved := *s
	w.bucket.settle(w.now)
	ledger, level := s.ring.ledger(), s.level[0]
	*s = saved
	if live > ledger {
		return fmt.Sprintf("holders have %d tokens, the ledger knows of %d", live, ledger)
	}
	if level < 0 || level > w.limit.Capacity()*w.unit || level > max(0, total-ledger*w.unit) {
		return fmt.Sprintf("the level is %d/%d, the ledger %d", level, w.unit, ledger)
	}
	if w.x+level+live*w.unit > total {
		return fmt.Sprintf("admitted %d + level %d + held %d exceed B + E = %d (all /%d)", w.x, level, live*w.unit, total, w.unit)
	}
	return ""
}
