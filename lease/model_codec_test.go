package lease

import (
	"bytes"
	"slices"

	"github.com/yuzhi-go/yuzhi/clock"
)

// codecNow is the present of every decoded state: only differences matter, and slices that begin at a multiple of
// their width.
const codecNow = 5040 * 200_000

// codecFar is where times stop to differ: everything has run out, everything is full.
const codecFar = 60

// codec turns worlds into bytes and back. Two worlds that nothing can tell apart have the same bytes: every time
// is relative to now, seqs and epochs are ranks, messages are sorted, and so are the holders, which are alike.
type codec struct {
	phase   int64               // slices of all widths begin together every phase microseconds
	scales  [2][LimitsMax]Scale // of w.configs
	records map[string]*record
	store   [len(modelIDs)]record

	epochs []int64
	seqs   []int64
	parts  [][]byte
	blocks [len(modelIDs)][]byte

	in []byte // what is being decoded
}

func (c *codec) init(w *world) {
	c.phase = widthFor(w.model.ttl)
	if w.ttl2 != 0 {
		second := widthFor(w.ttl2)
		c.phase *= second / int64(gcd(uint64(c.phase), uint64(second)))
	}
	for i, config := range w.configs {
		for k, l := range config.Limits {
			c.scales[i][k], _ = newScale(l, w.e)
		}
	}
	c.records = make(map[string]*record)
}

// encode appends w to enc. order says which holder became which.
func (w *world) encode(enc []byte) (out []byte, order [3]int) {
	c := &w.codec
	s := &w.bucket.state
	if s.exists && !w.mutant {
		w.bucket.settle(w.now) // twice is as good as once: TestSettlingTwiceIsSettlingOnce
	}
	c.epochs = append(c.epochs[:0], s.epoch)
	for i := range w.model.holders {
		h := &w.holders[i]
		c.epochs = append(c.epochs, h.heard.epoch)
		if w.keepsOpen(h) {
			c.epochs = append(c.epochs, h.open.Epoch)
		}
		for k := range h.messages {
			c.epochs = append(c.epochs, h.messages[k].request.Epoch, h.messages[k].grant.Epoch)
		}
	}
	c.epochs = append(c.epochs, 0)
	c.epochs = sortedSet(c.epochs)[1:]

	enc = append(enc, byte(w.now%c.phase), flags(s.exists, w.lost, w.was[0], w.was[1]), byte(w.x))
	if s.exists {
		// After two moves more a record of before the last one is not live anyway.
		moved := near(w.now - s.ring.movedAt)
		enc = append(enc, near(w.now-s.clock), byte(s.level[0]), byte(s.level[1]), near(s.frozen-w.now), w.ttlCode(s.ttl), byte(s.ring.width), moved, rank(c.epochs, s.epoch))
		if w.forgets() {
			enc = append(enc, near(w.now-s.created))
		}
		if w.gone {
			enc = append(enc, near(w.now-s.setAt))
		}
		if w.ttl2 != 0 {
			enc = append(enc, w.ttlCode(s.proposed), near(w.now-s.proposedAt))
		}
		if w.alternative != nil {
			enc = append(enc, byte(len(w.bucket.config.Limits)), flags(w.bucket.config.Limits[0].same(w.limit)))
		}
		if w.versions {
			enc = append(enc, byte(max(0, s.keep-w.now)))
		}
		for i := range int64(ringSlices) {
			at := (s.ring.base + i) % ringSlices
			enc = append(enc, byte(s.ring.held[at]), byte(s.ring.weight[at]))
		}
	}
	for i := range w.model.holders {
		c.blocks[i] = w.encodeHolder(c.blocks[i][:0], i)
		order[i] = i
	}
	if !w.versions { // else they are not alike
		slices.SortStableFunc(order[:w.model.holders], func(a, b int) int { return bytes.Compare(c.blocks[a], c.blocks[b]) })
	}
	for _, i := range order[:w.model.holders] {
		enc = append(enc, c.blocks[i]...)
	}
	return enc, order
}

func (w *world) encodeHolder(enc []byte, i int) []byte {
	c := &w.codec
	h := &w.holders[i]
	rec := w.bucket.records[modelIDs[i]]
	var at place
	known := false
	if rec != nil && rec.epoch == w.bucket.state.epoch {
		at, known = w.bucket.state.ring.locate(rec.place, w.bucket.state.now)
	}
	keepSeq := w.keepsOpen(h)
	c.seqs = c.seqs[:0]
	if keepSeq {
		c.seqs = append(c.seqs, h.open.Seq)
	}
	if known {
		c.seqs = append(c.seqs, rec.seq)
	}
	for k := range h.messages {
		c.seqs = append(c.seqs, h.messages[k].request.Seq)
	}
	c.seqs = sortedSet(c.seqs)

	left := (int64(h.deadline) - w.now*1000 + 999) / 1000
	// Without tokens the deadline still says whether a refund may travel.
	if h.Pool.Held() == 0 && h.Holding.refund == 0 && h.refundable == 0 && h.unused == 0 && !w.mutant {
		left = 0
	}
	since := int64(0) // what a counter must reach to show that the holder heard of its record; no matter without one
	if known {
		since = rec.since
	}
	heardOf := func(counter int64) bool { return known && counter >= since }
	enc = append(enc, flags(h.isOpen, known, keepSeq, heardOf(h.heard.counter), h.openGone, h.openCredited), byte(h.Pool.Held()),
		byte(h.Holding.refund), byte(h.refundable), near(left), rank(c.epochs, h.heard.epoch))
	if w.forgets() && h.heard.epoch != 0 {
		enc = append(enc, near(micros(h.heard.leaseMax)), near(w.now-h.heard.serverTime), near(w.now-int64(h.heard.executed)/1000))
	}
	if w.gone {
		enc = append(enc, byte(h.unused), near(w.now-h.unusedSince))
	}
	if w.versions {
		enc = append(enc, byte(max(0, int64(h.heard.forgetAt)/1000-w.now)))
	}
	if keepSeq {
		enc = append(enc, near(w.now-int64(h.firstSent)/1000))
		enc = w.encodeRequest(enc, &h.open, heardOf)
	}
	if known {
		moved := rec.place.gen != w.bucket.state.ring.gen
		slice := at.slice - w.bucket.state.ring.base
		if moved {
			slice = 0 // it is at the landing
		}
		enc = append(enc, rank(c.seqs, rec.seq), flags(rec.void, moved), byte(slice), byte(rec.held), byte(rec.granted))
	}
	c.parts = c.parts[:0]
	for k := range h.messages {
		m := &h.messages[k]
		part := w.encodeRequest([]byte{flags(m.reply, m.gone, m.credited)}, &m.request, heardOf)
		if m.reply {
			g := &m.grant
			part = append(part, byte(g.Granted), byte(g.Waited), flags(g.Void, heardOf(g.Counter)), rank(c.epochs, g.Epoch), w.ttlCode(micros(g.Config.TTL)))
			if w.gone {
				part = append(part, near(w.now-g.Running))
			}
			if w.forgets() {
				part = append(part, near(micros(g.LeaseMax)), near(w.now-g.ServerTime))
			}
			if w.versions {
				part = append(part, byte(min(micros(g.Expiry), 250)))
			}
		}
		c.parts = append(c.parts, part)
	}
	slices.SortFunc(c.parts, bytes.Compare)
	enc = append(enc, byte(len(c.parts)))
	for _, p := range c.parts {
		enc = append(enc, p...)
	}
	return enc
}

func (w *world) encodeRequest(enc []byte, r *Request, heardOf func(int64) bool) []byte {
	enc = append(enc, rank(w.codec.seqs, r.Seq), byte(r.Remaining), byte(r.Returned), byte(r.Refund), byte(r.Want), byte(r.Waiting),
		rank(w.codec.epochs, r.Epoch), flags(heardOf(r.Counter)))
	if w.gone {
		enc = append(enc, byte(r.Unused), near(w.now-r.Drawn))
	}
	if w.forgets() && r.Epoch != 0 {
		enc = append(enc, near(micros(r.LeaseMax)), near(w.now-r.HeardAt), near(micros(r.HeardAge)))
	}
	return enc
}

func (c *codec) next() int64 {
	b := c.in[0]
	c.in = c.in[1:]
	return int64(b)
}

// decode makes w the state that enc says.
func (w *world) decode(enc []byte) {
	c := &w.codec
	c.in = enc
	w.now = codecNow + c.next()
	is := c.next()
	w.lost = is&2 != 0
	w.was = [2]bool{is&4 != 0, is&8 != 0}
	w.x = c.next()
	clear(c.records)
	w.bucket = Bucket{records: c.records}
	if is&1 != 0 {
		w.decodeBucket()
	}
	for i := range w.model.holders {
		w.decodeHolder(i)
	}
}

func (w *world) decodeBucket() {
	c := &w.codec
	w.bucket.config, w.bucket.scales = w.configs[0], c.scales[0]
	s := &w.bucket.state
	s.exists = true
	s.clock = w.now - c.next()
	s.now = s.clock
	s.level[0], s.level[1] = c.next(), c.next()
	if left := c.next(); left > 0 {
		s.frozen = w.now + left
	}
	s.ttl = w.ttlOf(byte(c.next()))
	s.proposed, s.proposedAt = s.ttl, s.now
	s.ring.width = c.next()
	s.ring.base = s.now / s.ring.width
	s.ring.gen = 5
	s.ring.movedAt = w.now - c.next()
	s.epoch = c.next()
	s.counter = 10
	s.fair = newFair(s.now, 1)
	s.created = w.now - codecFar
	if w.forgets() {
		s.created = w.now - c.next()
	}
	if w.gone {
		s.setAt = w.now - c.next()
	}
	if w.ttl2 != 0 {
		s.proposed = w.ttlOf(byte(c.next()))
		s.proposedAt = w.now - c.next()
	}
	if w.alternative != nil {
		n, base := c.next(), c.next()
		if int(n) != len(w.configs[0].Limits) || base == 0 {
			w.bucket.config, w.bucket.scales = w.configs[1], c.scales[1]
		}
	}
	if w.versions {
		s.keep = w.now + c.next()
	}
	for i := range int64(ringSlices) {
		at := (s.ring.base + i) % ringSlices
		s.ring.held[at] = c.next()
		s.ring.weight[at] = c.next()
	}
}

func (w *world) decodeHolder(i int) {
	c := &w.codec
	h := &w.holders[i]
	is := c.next()
	held := c.next()
	h.Pool.word.Store(countBias + uint64(held))
	h.Pool.settle()
	h.isOpen = is&1 != 0
	h.openGone, h.openCredited = is&16 != 0, is&32 != 0
	h.Holding.refund = c.next()
	h.refundable = c.next()
	h.deadline = w.instant() + clock.Instant(c.next()*1000)
	h.heard = heard{lineage: lineage{epoch: c.next(), counter: is & 8, forgetAt: 1<<63 - 1}}
	if w.forgets() && h.heard.epoch != 0 {
		h.heard.leaseMax = duration(c.next())
		h.heard.serverTime = w.now - c.next()
		h.heard.executed = clock.Instant((w.now - c.next()) * 1000)
	}
	h.unused, h.unusedSince = 0, 0
	if w.gone {
		h.unused, h.unusedSince = c.next(), w.now-c.next()
	}
	if w.versions {
		h.heard.forgetAt = clock.Instant((w.now + c.next()) * 1000)
	}
	h.open = Request{}
	if is&4 != 0 {
		h.firstSent = clock.Instant((w.now - c.next()) * 1000)
		h.open = w.decodeRequest(i)
	}
	h.base = held
	h.account = Account{Granted: held + h.unused}
	if h.isOpen {
		h.account.Granted += h.open.Returned + h.open.Unused
	}
	if is&2 != 0 {
		ring := &w.bucket.state.ring
		r := &c.store[i]
		*r = record{seq: c.next(), epoch: w.bucket.state.epoch, weight: 1, since: 8}
		bits, slice := c.next(), c.next()
		r.void = bits&1 != 0
		r.place = place{gen: ring.gen, slice: ring.base + slice, ends: (ring.base + slice + 1) * ring.width}
		if bits&2 != 0 {
			r.place = place{gen: ring.gen - 1, ends: 1 << 60}
		}
		r.held, r.granted = c.next(), c.next()
		c.records[modelIDs[i]] = r
	}
	h.messages = h.messages[:0]
	for n := c.next(); n > 0; n-- {
		bits := c.next()
		m := modelMessage{reply: bits&1 != 0, gone: bits&2 != 0, credited: bits&4 != 0, request: w.decodeRequest(i)}
		if m.reply {
			m.grant = Grant{Seq: m.request.Seq, Granted: c.next(), Waited: c.next(), Config: m.request.Config}
			bits := c.next()
			m.grant.Void, m.grant.Counter = bits&1 != 0, bits&2*4
			m.grant.Epoch = c.next()
			m.grant.Config.TTL = duration(w.ttlOf(byte(c.next())))
			if w.gone {
				m.grant.Running = w.now - c.next()
			}
			if w.forgets() {
				m.grant.LeaseMax = duration(c.next())
				m.grant.ServerTime = w.now - c.next()
			}
			if w.versions {
				m.grant.Expiry = duration(c.next())
			}
		}
		h.messages = append(h.messages, m)
	}
}

func (w *world) decodeRequest(i int) Request {
	c := &w.codec
	r := Request{Holder: modelIDs[i], Config: w.proposes(i), Weight: 1}
	r.Seq, r.Remaining, r.Returned, r.Refund = c.next(), c.next(), c.next(), c.next()
	r.Want, r.Waiting, r.Epoch = c.next(), c.next(), c.next()
	r.Counter = c.next() * 8
	if w.gone {
		r.Unused, r.Drawn = c.next(), w.now-c.next()
	}
	if w.forgets() && r.Epoch != 0 {
		r.LeaseMax = duration(c.next())
		r.HeardAt = w.now - c.next()
		r.HeardAge = duration(c.next())
	}
	return r
}

// nextSeq is above every seq of h that anybody may still hear of.
func (c *codec) nextSeq(h *modelHolder) int64 {
	n := h.open.Seq
	for k := range h.messages {
		n = max(n, h.messages[k].request.Seq)
	}
	if r := c.records[h.id]; r != nil {
		n = max(n, r.seq)
	}
	return n + 1
}

// forgets reports whether a bucket may be gone, so that what its holders heard of it matters.
func (w *world) forgets() bool { return w.flush || w.versions }

// keepsOpen reports whether the latest call of h still matters. Without every rule in place it may
// when it is closed.
func (w *world) keepsOpen(h *modelHolder) bool { return h.isOpen || w.mutant }
