package lease

import (
	"fmt"

	"github.com/yuzhi-go/yuzhi/clock"
)

// world is one state of a model: the real Bucket, the real Holdings, the messages between them, and the meter.
type world struct {
	model
	configs [2]Config // in force at first, and instead
	unit    int64     // of the bucket's levels, and of x
	step    int64
	now     int64
	bucket  Bucket
	lost    bool // the bucket was lost and nobody has called since
	holders [3]modelHolder
	x       int64   // the meter, see meter
	was     [2]bool // lost, and its T set, already

	codec codec
}

type modelHolder struct {
	Holding
	refundable int64 // 1: it has admitted a token that may still be refunded
	messages   []modelMessage
	// Of the open call: the request that waits for it will have gone; its refund was credited.
	openGone, openCredited bool
}

// modelMessage is a request, or the reply to one, on its way.
type modelMessage struct {
	reply          bool
	gone, credited bool // as the call's
	request        Request
	grant          Grant
}

var modelIDs = [...]string{"A", "B", "C"}

func newWorld(m model) *world {
	w := &world{model: m, now: codecNow}
	w.configs[0] = Config{Limits: []Limit{m.limit}, Overcommit: m.e, TTL: duration(m.ttl), Target: 1000}
	w.configs[1] = w.configs[0]
	if m.alternative != nil {
		w.configs[1].Limits = m.alternative
	}
	if m.versions {
		w.configs[1].Version.Deploy = 1
	}
	sc, err := newScale(m.limit, m.e)
	if err != nil || sc.Tick != 1 {
		panic(fmt.Sprint(m.limit, sc, err))
	}
	w.unit, w.step = sc.Unit, sc.Step
	for i := range w.holders {
		h := &w.holders[i]
		h.init(modelIDs[i], 0)
	}
	w.codec.init(w)
	for _, e := range m.before {
		w.apply(e)
	}
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
	eventSetLimits
	eventRestart
)

// Kinds of ask.
const (
	askTokens uint8 = iota
	askWaiting
	askBack
	askBackAndTokens
	askGone
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
			if w.gone {
				to = append(to, event{eventOpen, at, askGone})
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
	if w.flush && w.bucket.state.exists && !(w.once && w.was[0]) {
		to = append(to, event{kind: eventFlush})
	}
	if w.ttl2 != 0 && w.bucket.state.exists && !(w.once && w.was[1]) {
		to = append(to, event{kind: eventSetTTL})
	}
	if w.alternative != nil && !w.versions && w.bucket.state.exists {
		to = append(to, event{kind: eventSetLimits})
	}
	for i := range w.model.holders {
		if h := &w.holders[i]; w.versions && len(h.messages) == 0 && h.heard.epoch != 0 && h.Pool.Held() == 0 {
			to = append(to, event{eventRestart, uint8(i), 0})
		}
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
		r := h.Open(w.instant(), w.codec.nextSeq(h), w.ask(e))
		h.openGone, h.openCredited = e.arg == askGone, false
		h.messages = append(h.messages, modelMessage{request: *r, gone: h.openGone})
	case eventResend:
		if r := h.Resend(w.instant()); r != nil {
			h.messages = append(h.messages, modelMessage{request: *r, gone: h.openGone, credited: h.openCredited})
		}
	case eventTake:
		h.Expire(w.instant())
		if h.Pool.Take().Ok() {
			if w.counts() {
				w.x += w.unit
			}
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
		w.bucket = Bucket{}
		w.lost, w.was[0] = true, w.once
	case eventSetTTL:
		c := w.bucket.config
		c.TTL = duration(w.model.ttl + w.ttl2 - w.bucket.state.ttl)
		w.was[1] = w.once
		if _, err := w.bucket.Configure(w.now, OpSet, c); err != nil {
			return err.Error()
		}
	case eventSetLimits:
		c := w.configs[0]
		if len(w.bucket.config.Limits) == len(c.Limits) {
			c = w.configs[1]
		}
		if _, err := w.bucket.Configure(w.now, OpSet, c); err != nil {
			return err.Error()
		}
		w.bucket.config.Version = Version{Revision: 1}
	case eventRestart:
		h.heard = heard{}
	}
	return w.violation()
}

// proposes is the configuration that holder i proposes.
func (w *world) proposes(i int) Config {
	if w.versions && i > 0 {
		return w.configs[1]
	}
	return w.configs[0]
}

func (w *world) ask(e event) Ask {
	a := Ask{Config: w.proposes(int(e.holder)), Want: w.want, Weight: 1}
	switch e.arg {
	case askWaiting, askGone:
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
		switch {
		case ok && m.gone:
			h.Unused(got.Waited, got.Drawn)
		case ok && got.Waited > 0:
			h.refundable = 1
		}
		if !w.versions {
			h.heard.forgetAt = 1<<63 - 1 // the bucket is remembered until it is lost
		}
		return
	}
	w.lost = false
	if s := &w.bucket.state; w.versions && s.exists && w.now >= s.keep {
		clear(w.bucket.records)
		w.bucket = Bucket{records: w.bucket.records}
	}
	// Executing spends from the allowance, answering from the record does not: that tells them apart.
	const untouched = -5
	rec := w.bucket.records[h.id]
	if rec != nil {
		rec.debit.allowance = untouched
	}
	shareNothing(&w.bucket)
	level := w.refunded(&m.request)
	if err := w.bucket.Call(w.now, &m.request, &m.grant); err != nil {
		return
	}
	if rec = w.bucket.records[h.id]; rec.debit.allowance != untouched && w.counts() {
		if !m.credited {
			w.x = max(0, w.x-level)
		}
		if !m.gone {
			w.x += m.grant.Waited * w.unit
		}
	}
	if level > 0 {
		w.credited(h, m.request.Seq)
		m.credited = true
	}
	m.reply = true
	h.messages = append(h.messages, m)
}

// credited notes that the refund of call seq was credited: however often the call is executed, it
// was refunded once.
func (w *world) credited(h *modelHolder, seq int64) {
	h.openCredited = h.openCredited || h.open.Seq == seq
	for i := range h.messages {
		if m := &h.messages[i]; m.request.Seq == seq {
			m.credited = true
		}
	}
}

// counts reports whether the limit that the meter watches is in force: it is the last of its
// configuration.
func (w *world) counts() bool {
	limits := w.bucket.config.Limits
	return len(limits) > 0 && limits[len(limits)-1].same(w.limit)
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
	last := len(w.bucket.config.Limits) - 1
	return with.state.level[max(0, last)] - without.state.level[max(0, last)]
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
	// What follows is why (1) holds, not what it says; a mutant is to be caught by what it admits.
	s := &w.bucket.state
	if w.mutant || !s.exists || s.frozen > w.now || !w.counts() {
		return ""
	}
	saved := *s
	w.bucket.settle(w.now)
	ledger, level := s.ring.ledger(), s.level[len(w.bucket.config.Limits)-1]
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
