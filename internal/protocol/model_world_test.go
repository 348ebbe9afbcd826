package protocol

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// modelStart is the present of every world at first: slices of all widths begin there.
const modelStart = 5040 * 200_000

// instance is common to all worlds of a model.
type instance struct {
	model
	configs [2]lease.Config // in force at first, and instead
	unit    int64           // of the bucket's levels, and of world.x
	step    int64
	phase   int64 // slices of all widths begin together every phase microseconds; cells and periods too
	grain   int64 // all times are multiples of so many microseconds
}

// world is one state of a model: the real Bucket, the real Holdings, the messages between them, and
// the meter.
type world struct {
	*instance
	now     int64
	bucket  Bucket
	lost    bool // the bucket was lost and nobody has called since
	holders []modelHolder
	behind  int64   // by which the server's clock has stepped back
	x       int64   // the meter: what the worst window that ends now holds beyond R*w, in units
	was     [2]bool // lost, and its T set, already
	// spent are the units that a window has admitted, by ticks ago; for a calendar whose clock steps back,
	// by period: the present one, the next and the last.
	spent [spentTicks]int64
}

type modelHolder struct {
	holder
	unreported int64 // tokens used beyond what it had that no executed call has charged
	refundable int64 // 1: it has admitted a token that may still be refunded
	reserved   int64 // 1: a request has a token of this draw, which it gives back if it ends
	draw       pool.Draw
	messages   []*modelMessage // which are not changed
	// Of the open call: the request that waits for it will have gone; its refund was credited.
	openGone, openCredited bool
}

// modelMessage is a request, or the reply to one, on its way.
type modelMessage struct {
	reply          bool
	gone, credited bool // as the call's
	request        lease.Request
	grant          lease.Grant
}

var modelIDs = [...]string{"A", "B", "C"}

func newWorld(m model) *world {
	sc, err := ScaleOf(m.limit, m.e), m.limit.Validate()
	if err != nil || sc.Tick != 1 && !m.limit.Windowed() {
		panic(fmt.Sprint(m.limit, sc, err))
	}
	if m.limit.Windowed() {
		m.ttl, m.tick = cmp.Or(m.ttl, windowTTL), cmp.Or(m.tick, windowTick)
	}
	m.ttl, m.tick = cmp.Or(m.ttl, modelTTL), cmp.Or(m.tick, 1)
	m.holders, m.want, m.inflight = cmp.Or(m.holders, 2), cmp.Or(m.want, 1), cmp.Or(m.inflight, 1)
	in := &instance{model: m, unit: sc.Unit, step: sc.Step, phase: widthFor(m.ttl), grain: 1}
	begins := []int64{widthFor(m.ttl2)}
	if m.limit.Windowed() {
		in.step = 0
	}
	if windowed := slices.ContainsFunc(append(slices.Clone(m.alternative), m.limit),
		lease.Limit.Windowed); windowed {
		in.grain = m.tick
		begins = append(begins, sc.Cell, sc.Tick)
		for _, l := range m.alternative {
			begins = append(begins, exact.Micros(l.Per))
		}
	}
	for _, every := range begins {
		if every > 0 {
			in.phase *= every / int64(exact.GCD(uint64(in.phase), uint64(every)))
		}
	}
	in.configs[0] = lease.Config{Limits: []lease.Limit{m.limit}, Overcommit: m.e, TTL: exact.Duration(m.ttl),
		Target:     1000,
		StartEmpty: m.startEmpty}
	in.configs[1] = in.configs[0]
	if m.alternative != nil {
		in.configs[1].Limits = m.alternative
	}
	if m.versions {
		in.configs[1].Version.Deploy = 1
	}
	if m.turns && !m.instead {
		in.configs[0].Limits = append(slices.Clone(m.alternative), m.limit)
	}
	w := &world{instance: in, now: modelStart, holders: make([]modelHolder, m.holders)}
	for i := range w.holders {
		w.holders[i].init(modelIDs[i], 0)
	}
	for _, e := range m.before {
		w.apply(e)
	}
	return w
}

// copyTo makes to a copy of w that shares nothing with it but messages, in the memory that it has.
func (w *world) copyTo(to *world) {
	records, holders := to.bucket.records, to.holders
	if records == nil {
		records, holders = make(map[string]*record), make([]modelHolder, len(w.holders))
	}
	assign(to, w)
	to.bucket.records, to.holders = records, holders
	to.bucket.limits = w.bucket.copied().limits
	clear(records)
	for id, rec := range w.bucket.records {
		copied := *rec
		records[id] = &copied
	}
	for i := range holders {
		messages := holders[i].messages[:0]
		assign(&holders[i], &w.holders[i])
		holders[i].messages = append(messages, w.holders[i].messages...)
	}
}

// assign is *to = *from for types that are not copied otherwise: no other use of them comes meanwhile.
func assign[T any](to, from *T) { reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem()) }

func (w *world) instant() clock.Instant { return clock.Instant(w.now * 1000) }

// server returns the time by the server's clock.
func (w *world) server() int64 { return w.now - w.behind }

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
	eventReserve
	eventCancel
	eventDeliver
	eventDeliverTwice // and it may arrive once more
	eventLose
	eventEvict
	eventFlush
	eventSetTTL
	eventSetLimits
	eventRestart
	eventCharge
	eventStepBack
)

// Kinds of ask.
const (
	askTokens = iota
	askWaiting
	askBack
	askBackAndTokens
	askGone
	askDraw
)

// events lists what can happen now.
func (w *world) events(to []event) []event {
	add := func(possible bool, kind eventKind, holder, arg int) {
		if possible {
			to = append(to, event{kind, uint8(holder), uint8(arg)})
		}
	}
	add(true, eventTick, 0, 0)
	for i := range w.holders {
		h := &w.holders[i]
		room := len(h.messages) < w.inflight
		live := w.instant() < h.Deadline() && h.Pool.Held() > 0
		opens := room && (!h.isOpen || w.moves.has(canGiveUp))
		add(opens && (!w.turns || w.instead) && w.back == 0, eventOpen, i, askTokens)
		add(opens && w.moves.has(canWait), eventOpen, i, askWaiting)
		add(opens && w.moves.has(canDraw) && h.Pool.Held() == 0, eventOpen, i, askDraw)
		add(opens && w.moves.has(canLeave), eventOpen, i, askGone)
		add(opens && w.moves.has(canGiveBack) && live, eventOpen, i, askBack)
		add(opens && w.moves.has(canGiveBack) && live, eventOpen, i, askBackAndTokens)
		add(room && w.moves.has(canRetry) && h.isOpen && !h.open.Draw, eventResend, i, 0)
		add(live, eventTake, i, 0)
		add(live && w.moves.has(canCancel) && h.reserved == 0, eventReserve, i, 0)
		add(h.reserved > 0, eventCancel, i, 0)
		add(w.moves.has(canRefund) && h.refundable > 0 && h.refund == nil, eventRefund, i, 0)
		owes := w.bucket.exists && w.left(&w.bucket, 0) < -w.unit
		add(w.moves.has(canCharge) && len(h.charge)+len(h.openCharge) == 0 && !owes, eventCharge, i, 0)
		for k, m := range h.messages {
			// After a loss the promise needs a first call of a process that knows of it.
			arrives := m.reply || !w.lost || m.request.Epoch > 0
			add(arrives, eventDeliver, i, k)
			add(arrives && w.moves.has(canRepeat) && room, eventDeliverTwice, i, k)
			add(!w.moves.has(lossless), eventLose, i, k)
		}
		add(w.moves.has(canEvict) && w.bucket.records[modelIDs[i]] != nil, eventEvict, i, 0)
		idle := len(h.messages) == 0 && h.heard.epoch != 0 && h.Pool.Held() == 0
		add(w.versions && idle, eventRestart, i, 0)
	}
	exists := w.bucket.exists
	add(exists && w.moves.has(canFlush) && !(w.once && w.was[0]), eventFlush, 0, 0)
	add(exists && w.ttl2 != 0 && !(w.once && w.was[1]), eventSetTTL, 0, 0)
	add(exists && w.alternative != nil && !w.versions && !w.turns, eventSetLimits, 0, 0)
	add(exists && w.behind < w.back, eventStepBack, 0, 0)
	return to
}

// apply makes e happen and says what is wrong afterwards.
func (w *world) apply(e event) (violation string) {
	h := &w.holders[e.holder]
	switch e.kind {
	case eventTick:
		w.now += w.tick
		w.x = max(0, w.x-w.step*w.tick)
		w.ages()
	case eventOpen:
		r := h.openCall(w.instant(), w.nextSeq(h), w.ask(e))
		r.Draw = e.arg == askDraw && len(r.Late) == 0
		h.openGone, h.openCredited = e.arg == askGone, false
		h.messages = append(h.messages, &modelMessage{request: *r, gone: h.openGone})
	case eventResend:
		if r := h.resend(w.instant()); r != nil {
			h.messages = append(h.messages, &modelMessage{request: *r, gone: h.openGone,
				credited: h.openCredited})
		}
	case eventTake:
		h.Expire(w.instant())
		if h.Pool.Take().OK() {
			if w.counts() {
				w.admit(w.unit)
			}
			h.refundable = 1
		}
	case eventRefund:
		h.refundable = 0
		h.Refund(1, nil)
	case eventReserve:
		h.Expire(w.instant())
		if d := h.Pool.Drawn(); h.Pool.Take().OK() {
			h.reserved, h.draw = 1, d
		}
	case eventCancel:
		h.putBack(w.instant(), 1, h.draw)
		h.reserved, h.draw = 0, pool.Draw{}
	case eventDeliver, eventDeliverTwice, eventLose:
		m := h.messages[e.arg]
		if e.kind != eventDeliverTwice {
			h.messages = slices.Delete(h.messages, int(e.arg), int(e.arg)+1)
		}
		if e.kind != eventLose {
			w.deliver(h, *m)
		}
	case eventEvict:
		delete(w.bucket.records, h.id)
	case eventFlush:
		w.bucket = Bucket{}
		w.lost, w.was[0] = true, w.once
	case eventSetTTL:
		c := w.bucket.config
		c.TTL = exact.Duration(w.ttl + w.ttl2 - w.bucket.ttl)
		w.was[1] = w.once
		return w.set(c)
	case eventSetLimits:
		c := w.configs[0]
		if slices.EqualFunc(w.bucket.config.Limits, c.Limits, lease.Limit.Equal) {
			c = w.configs[1]
		}
		return w.set(c)
	case eventStepBack:
		w.stepsBack()
	case eventRestart:
		h.heard = Heard{}
	case eventCharge:
		h.charge.add(1, int64(w.instant()), usedBy(w.instant(), w.server(), w.bucket.config.Limits))
		h.unreported++
		w.admit(w.unit)
	}
	return w.violation()
}

// set has an operator set c. It is always the first revision, or worlds would never be the same again.
func (w *world) set(c lease.Config) (violation string) {
	if _, err := w.bucket.Configure(w.server(), lease.OpSet, c); err != nil {
		return err.Error()
	}
	w.bucket.config.Version = lease.Version{Revision: 1}
	return w.violation()
}

func (w *world) proposes(i int) lease.Config {
	if (w.versions || w.turns) && i > 0 {
		return w.configs[1]
	}
	return w.configs[0]
}

func (w *world) ask(e event) ask {
	a := ask{Config: w.proposes(int(e.holder)), Want: w.want, Weight: 1}
	if e.holder == 0 {
		a.Headroom = w.headroom
	}
	switch e.arg {
	case askWaiting, askGone:
		a.Waiting = 1
	case askDraw:
		a.Want, a.Waiting = 1, 1
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
		got, ok := h.accept(w.instant(), &m.grant, 0, false)
		switch {
		case ok && m.gone:
			h.sendBack(got.Waited, got.draw)
		case ok && got.Waited > 0:
			h.refundable = 1
		}
		if !w.versions {
			// The bucket is remembered until it is lost.
			h.heard.expiry = exact.Duration(lease.WaitingMax)
		}
		return
	}
	w.lost = false
	if s := &w.bucket; w.versions && s.exists && w.now >= s.keep {
		clear(w.bucket.records)
		w.bucket = Bucket{records: w.bucket.records}
	}
	shareNothing(&w.bucket)
	executed := w.bucket.executed
	if err := w.bucket.Call(w.server(), &m.request, &m.grant); err != nil {
		return
	}
	if w.bucket.executed != executed {
		h.unreported = max(0, h.unreported-Reported(m.request.Late, lease.LateCharge))
		refunded := w.bucket.refunded[len(w.bucket.config.Limits)-1]
		if w.counts() && !m.credited {
			w.admit(-refunded)
		}
		if w.counts() && !m.gone {
			w.admit(m.grant.Waited * w.unit)
		}
		if refunded > 0 {
			w.credited(h, m.request.Seq)
			m.credited = true
		}
	}
	m.reply = true
	h.messages = append(h.messages, &m)
}

// credited notes that the refund of call seq was credited: however often the call is executed, it
// was refunded once.
func (w *world) credited(h *modelHolder, seq int64) {
	h.openCredited = h.openCredited || h.open.Seq == seq
	for i, m := range h.messages {
		if m.request.Seq == seq {
			credited := *m
			credited.credited = true
			h.messages[i] = &credited
		}
	}
}

// counts reports whether the limit that the meter watches is in force: it is the last of its configuration.
func (w *world) counts() bool {
	limits := w.bucket.config.Limits
	return len(limits) > 0 && limits[len(limits)-1].Equal(w.limit)
}

// violation says which promise is broken now.
func (w *world) violation() string {
	total := (w.limit.Capacity() + w.e) * w.unit
	b := settled(&w.bucket, w.server())
	level := int64(0)
	if w.counts() {
		level = w.left(&b, len(b.config.Limits)-1)
	}
	for i := range w.holders {
		total += w.holders[i].unreported * w.unit
	}
	if w.x > total-min(level, 0) {
		return fmt.Sprintf("(1) is broken: the worst window admitted R*w + %d/%d tokens, "+
			"B + E and what is owed are %d/%d", w.x, w.unit, total-min(level, 0), w.unit)
	}
	live := int64(0)
	for i := range w.holders {
		h := &w.holders[i]
		if !h.Account().Conserved() {
			return fmt.Sprintf("%s lost or forged tokens: %+v", modelIDs[i], h.Account())
		}
		if w.instant() < h.Deadline() {
			live += h.Pool.Held()
		}
	}
	// A mutant is to be caught by what it admits, not by why (1) holds.
	if w.mutant || !w.bucket.exists || w.bucket.frozen > w.now || !w.counts() {
		return ""
	}
	if err := sound(&b, live); err != nil {
		return err.Error()
	}
	if win := b.windowOf(0); win != nil {
		if win.cells == nil && win.boundary()-win.Tick > w.server() {
			return "" // what is left is of the period to which the clock has yet to come
		}
	}
	if w.x+level+live*w.unit > total {
		return fmt.Sprintf("admitted %d + level %d + held %d exceed B + E = %d (all /%d)", w.x, level,
			live*w.unit, total, w.unit)
	}
	return ""
}

// nextSeq is above every seq of h that anybody may still hear of.
func (w *world) nextSeq(h *modelHolder) int64 {
	n := h.open.Seq
	for _, m := range h.messages {
		n = max(n, m.request.Seq)
	}
	if r := w.bucket.records[h.id]; r != nil {
		n = max(n, r.Seq)
	}
	return n + 1
}

var eventTexts = [...]string{
	eventTick: "time passes", eventOpen: "asks ", eventResend: "sends its call again",
	eventTake:   "spends a token",
	eventRefund: "refunds a token", eventReserve: "takes a token for a request that does not happen",
	eventCancel: "gives that token back", eventDeliver: "arrives: ",
	eventDeliverTwice: "arrives, and may again: ",
	eventLose:         "is lost: ", eventEvict: "its record is evicted", eventFlush: "the bucket is lost",
	eventSetTTL: "T changes", eventSetLimits: "other limits are set", eventRestart: "restarts",
	eventCharge: "uses a token more than it had", eventStepBack: "the server's clock steps back",
}

var askTexts = [...]string{
	askTokens: "for tokens", askWaiting: "for a request that waits", askBack: "for nothing, and gives back",
	askBackAndTokens: "for tokens, and gives one back", askGone: "for a request that will have gone",
	askDraw: "for a request that waits, by a draw",
}

// tell says in words what e is, before it happens.
func (w *world) tell(e event) string {
	h, text := &w.holders[e.holder], modelIDs[e.holder]+" "+eventTexts[e.kind]
	switch e.kind {
	case eventOpen:
		text += askTexts[e.arg]
	case eventDeliver, eventDeliverTwice, eventLose:
		m := h.messages[e.arg]
		text += fmt.Sprintf("seq %d (remaining %d, returned %d, late %v)",
			m.request.Seq, m.request.Remaining, m.request.Returned, m.request.Late)
		if m.reply {
			text += fmt.Sprintf(", its reply (granted %d, void %v)", m.grant.Granted, m.grant.Void)
		}
	}
	return text
}

// sketch is the state after an event, in one line.
func (w *world) sketch() string {
	var b strings.Builder
	fmt.Fprintf(&b, "level %d/%d ledger %d X %d |", w.left(&w.bucket, 0), w.unit,
		w.bucket.ring.ledger(), w.x)
	for i := range w.holders {
		h := &w.holders[i]
		left := max(0, h.Deadline().Sub(w.instant()))
		fmt.Fprintf(&b, " %s has %d for %v", modelIDs[i], h.Pool.Held(), left)
	}
	return b.String()
}
