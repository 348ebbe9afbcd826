package protocol

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// far is where times stop to differ: everything has run out, everything is full.
const far = 60

// describer writes worlds down. Two worlds that nothing can tell apart have the same description:
// every time is relative to now, seqs and epochs are ranks, messages are sorted, and so are the
// holders, which are alike.
type describer struct {
	grain        int64
	epochs, seqs []int64 // those that occur
	blocks       [len(modelIDs)][]byte
	parts        [][]byte
}

// near is a span of time, as far as it matters.
func (d *describer) near(us int64) int64 { return min((max(us, 0)+d.grain-1)/d.grain, far) }

func put(to []byte, values ...int64) []byte {
	for _, v := range values {
		to = append(to, byte(v))
	}
	return to
}

// putIf is put where the values matter, as they do in some models only.
func putIf(matters bool, to []byte, values ...int64) []byte {
	if !matters {
		return to
	}
	return put(to, values...)
}

func flags(bits ...bool) (n int64) {
	for i, on := range bits {
		if on {
			n |= 1 << i
		}
	}
	return n
}

// rank is the place of n among those that occur, from 1 on.
func rank(of []int64, n int64) int64 {
	i, found := slices.BinarySearch(of, n)
	if !found {
		return 0
	}
	return int64(i) + 1
}

func sortedSet(s []int64) []int64 {
	slices.Sort(s)
	return slices.Compact(s)
}

// describe appends the description of w.
func (d *describer) describe(to []byte, w *world) []byte {
	d.grain = w.grain
	s := &w.bucket
	if s.exists && !w.mutant {
		w.bucket.settle(w.server()) // twice is as good as once: TestSettlingTwiceIsSettlingOnce
	}
	d.epochs = append(d.epochs[:0], 0, s.epoch)
	for i := range w.holders {
		h := &w.holders[i]
		d.epochs = append(d.epochs, h.heard.epoch, h.draw.Epoch)
		if w.keepsOpen(h) {
			d.epochs = append(d.epochs, h.open.Epoch)
		}
		for _, m := range h.messages {
			d.epochs = append(d.epochs, m.request.Epoch, m.grant.Epoch)
		}
	}
	d.epochs = sortedSet(d.epochs)[1:]

	to = put(to, w.now%w.phase/w.grain, flags(s.exists, w.lost, w.was[0], w.was[1]), w.x)
	to = putIf(w.limit.Windowed(), to, w.spent[:]...)
	to = putIf(w.back > 0, to, w.behind)
	if s.exists {
		to = d.bucket(to, w)
	}
	blocks := d.blocks[:len(w.holders)]
	for i := range w.holders {
		blocks[i] = d.holder(blocks[i][:0], w, i)
	}
	if !w.versions && !w.turns && w.headroom == 0 { // else they are not alike
		slices.SortFunc(blocks, bytes.Compare)
	}
	return append(to, bytes.Join(blocks, nil)...)
}

func (d *describer) bucket(to []byte, w *world) []byte {
	s := &w.bucket
	to = put(to, d.near(w.now-s.clock), d.units(s, 0), d.units(s, 1), d.near(s.frozen-w.now), s.ttl/w.grain,
		s.ring.width/w.grain,
		d.near(w.now-s.ring.movedAt), rank(d.epochs, s.epoch))
	to = putIf(w.forgets(), to, d.near(w.now-s.created))
	to = putIf(w.givesBackUnused(), to, d.near(w.now-s.setAt))
	to = putIf(w.ttl2 != 0, to, s.proposed/w.grain, d.near(w.now-s.proposedAt))
	if w.alternative != nil {
		to = put(to, int64(len(w.bucket.config.Limits)), flags(w.bucket.config.Limits[0].Equal(w.limit)),
			d.near(w.now-s.frozen)) // a new limit starts empty after a loss
	}
	to = putIf(w.moves.has(canDraw), to, d.near(s.fair.contendedUntil-w.now))
	to = putIf(w.versions, to, max(0, s.keep-w.now))
	to = putIf(w.turns, to, d.near(w.now-s.stoodAt))
	to = d.windows(to, w)
	for i := range int64(ringSlices) {
		at := (s.ring.base + i) % ringSlices
		to = put(to, s.ring.held[at], s.ring.weight[at])
	}
	return to
}

func (d *describer) holder(to []byte, w *world, i int) []byte {
	h, s := &w.holders[i], &w.bucket
	rec := w.bucket.records[modelIDs[i]]
	var at place
	known := false
	if rec != nil && rec.epoch == s.epoch {
		at, known = s.ring.locate(rec.Ends)
	}
	d.seqs = d.seqs[:0]
	if w.keepsOpen(h) {
		d.seqs = append(d.seqs, h.open.Seq)
	}
	if known {
		d.seqs = append(d.seqs, rec.Seq)
	}
	for _, m := range h.messages {
		d.seqs = append(d.seqs, m.request.Seq)
	}
	d.seqs = sortedSet(d.seqs)

	left := (int64(h.Deadline()) - w.now*1000 + 999) / 1000
	// Without tokens the deadline still says whether a refund or what is unused may travel.
	if h.Pool.Held() == 0 && len(h.refund)+len(h.unused) == 0 && h.refundable == 0 && h.reserved == 0 &&
		!w.mutant {
		left = 0
	}
	// A counter matters only as far as it shows that its holder has heard of the record.
	heardOf := func(counter int64) bool { return known && counter >= rec.Since }
	to = put(to, flags(h.isOpen, known, heardOf(h.heard.counter), h.openGone, h.openCredited), h.Pool.Held(),
		h.refund.sum(), h.refundable, h.reserved, d.near(left), rank(d.epochs, h.heard.epoch))
	to = putIf(w.forgets() && h.heard.epoch != 0, to, d.near(exact.Micros(h.heard.leaseMax)),
		d.near(w.now-h.heard.serverTime), d.near(w.now-int64(h.heard.executed)/1000))
	to = putIf(w.givesBackUnused(), to, h.unused.sum(), d.since(w, h.unused), d.near(w.now-h.heard.running))
	if h.reserved > 0 {
		to = put(to, d.near(w.now-h.draw.Running), rank(d.epochs, h.draw.Epoch),
			flags(h.draw.Interval == h.Pool.Interval(), h.draw.Running >= h.reported))
	}
	to = putIf(w.versions, to,
		min(max(0, int64(h.heard.executed.Add(h.heard.expiry))/1000-w.now), 250),
		min(max(0, h.heard.serverTime+exact.Micros(h.heard.expiry)-w.now), 250))
	to = putIf(w.forgets() && h.heard.epoch != 0, to, d.near(exact.Micros(h.heard.frozen)))
	to = putIf(w.moves.has(canCharge), to, h.charge.sum(), h.openCharge.sum(), h.unreported)
	to = putIf(w.moves.has(canCharge) && w.windowed(), to, d.used(w, h.openCharge), d.used(w, h.charge))
	if w.keepsOpen(h) {
		to = d.request(put(to, d.near(w.now-int64(h.firstSent)/1000)), w, &h.open, heardOf)
	}
	if known {
		to = put(to, rank(d.seqs, rec.Seq), flags(rec.Void),
			(rec.Ends-w.now)/w.grain, s.ring.slice(at)-s.ring.base, rec.Held, rec.Granted)
	}
	d.parts = d.parts[:0]
	for _, m := range h.messages {
		d.parts = append(d.parts, d.message(w, m, heardOf))
	}
	slices.SortFunc(d.parts, bytes.Compare)
	to = put(to, int64(len(d.parts)))
	return append(to, bytes.Join(d.parts, nil)...)
}

func (d *describer) message(w *world, m *modelMessage, heardOf func(int64) bool) []byte {
	to := d.request(put(nil, flags(m.reply, m.gone, m.credited)), w, &m.request, heardOf)
	if !m.reply {
		return to
	}
	g := &m.grant
	to = put(to, g.Granted, g.Waited, flags(g.Void, heardOf(g.Counter)), rank(d.epochs, g.Epoch),
		exact.Micros(g.Config.TTL)/w.grain)
	to = putIf(w.givesBackUnused(), to, d.near(w.now-g.Running))
	to = putIf(w.forgets(), to, d.near(exact.Micros(g.LeaseMax)), d.near(exact.Micros(g.Frozen)),
		d.near(w.now-g.ServerTime))
	to = putIf(w.versions, to, min(exact.Micros(g.Expiry), 250))
	return to
}

// since is how long ago the oldest of l was drawn.
func (d *describer) since(w *world, l lates) int64 {
	if len(l) == 0 {
		return 0
	}
	return d.near(w.now - l[0].first)
}

// used is how long ago the latest of l was used.
func (d *describer) used(w *world, l lates) int64 {
	if len(l) == 0 {
		return 0
	}
	return d.near(w.now - l[len(l)-1].last/1000)
}

func (d *describer) request(to []byte, w *world, r *lease.Request, heardOf func(int64) bool) []byte {
	to = put(to, rank(d.seqs, r.Seq), r.Remaining, r.Returned, Reported(r.Late, lease.LateRefund), r.Want, r.Waiting,
		rank(d.epochs, r.Epoch), flags(heardOf(r.Counter)))
	for _, l := range r.Late {
		if l.Kind == lease.LateUnused && w.givesBackUnused() || l.Kind == lease.LateCharge && w.moves.has(canCharge) {
			to = put(to, int64(l.Kind), l.Tokens, d.near(w.now-l.Drawn))
			to = putIf(w.windowed(), to, d.near(exact.Micros(l.Age)))
		}
	}
	to = putIf(w.moves.has(canDraw), to, flags(r.Draw))
	to = putIf(w.forgets() && r.Epoch != 0, to, d.near(exact.Micros(r.LeaseMax)), d.near(w.now-r.HeardAt),
		d.near(exact.Micros(r.HeardAge)))
	to = putIf(w.versions && r.Epoch != 0, to, min(max(0, r.HeardAt+exact.Micros(r.HeardExpiry)-w.now), 250))
	return to
}

// givesBackUnused reports whether it matters when tokens were drawn.
func (w *world) givesBackUnused() bool { return w.moves.has(canLeave) || w.moves.has(canCancel) }

// forgets reports whether a bucket may be gone, so that what its holders heard of it matters.
// windowed reports whether some limit is a window, for which it matters when a token was used.
func (w *world) windowed() bool {
	return slices.ContainsFunc(w.configs[:], func(c lease.Config) bool {
		return slices.ContainsFunc(c.Limits, lease.Limit.Windowed)
	})
}

func (w *world) forgets() bool { return w.moves.has(canFlush) || w.versions }

// keepsOpen reports whether the latest call of h still matters. Without every rule in place it may
// when it is closed.
func (w *world) keepsOpen(h *modelHolder) bool { return h.isOpen || w.mutant }

// TestEqualDumpsGoOnAlike walks at random through every model and keeps one world of
// each description. Another world that comes to the same description must be able to do the same,
// with the same result.
func TestEqualDumpsGoOnAlike(t *testing.T) {
	walks := testkit.ShortOrLong(t, 20, 100, "walks through each model")
	for _, m := range models {
		rnd := rand.New(rand.NewPCG(7, 7))
		m.moves &^= canFlush // two buckets made in the same microsecond have the same epoch
		known, alike := map[string]*world{}, 0
		for range walks {
			w := newWorld(m)
			for range 60 {
				events := w.events(nil)
				w.apply(events[rnd.IntN(len(events))])
				var d describer
				text := string(d.describe(nil, w))
				first := known[text]
				if first == nil {
					known[text] = new(world)
					w.copyTo(known[text])
					continue
				}
				alike++
				if a, b := first.futures(), w.futures(); !slices.Equal(a, b) {
					t.Fatalf("%s: two worlds of one description have different futures:\n%s\n%s", m.name,
						first.sketch(), w.sketch())
				}
			}
		}
		testkit.Check(t, alike >= walks/2, "%s: only %d worlds came to a known description",
			m.name, alike)
	}
}

// futures are the descriptions of all that w may become by one event or none, and what is wrong then.
func (w *world) futures() []string {
	var d describer
	all := []string{string(d.describe(nil, w))}
	for _, e := range w.events(nil) {
		after := new(world)
		w.copyTo(after)
		violation := after.apply(e)
		all = append(all, string(d.describe([]byte(violation), after)))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestSettlingTwiceIsSettlingOnce is why the codec may settle the bucket before it writes it down.
func TestSettlingTwiceIsSettlingOnce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		b := Bucket{}
		ttl := 1 + rnd.Int64N(50)
		l := perMicro(1+rnd.Int64N(3), 1+rnd.Int64N(5), 1+rnd.Int64N(20))
		b.install(1000, lease.Config{Limits: []lease.Limit{l}, Overcommit: rnd.Int64N(3), TTL: exact.Duration(ttl)})
		full := b.levelOf(0)
		full.units = rnd.Int64N(full.Capacity*full.Unit + 1)
		for s := range int64(ringSlices) {
			b.ring.add(b.ring.base+s, rnd.Int64N(4), 1)
		}
		b.clip()
		b.frozen = rnd.Int64N(2) * (1000 + rnd.Int64N(30))
		once, twice := b, b
		mid := 1000 + rnd.Int64N(100)
		end := mid + rnd.Int64N(100)
		once.settle(end)
		twice.settle(mid)
		twice.settle(end)
		if !reflect.DeepEqual(once, twice) {
			t.Fatalf("%v from %+v\nat once to %d: %+v\nby way of %d: %+v", l, b, end, once, mid,
				twice)
		}
	}
}

// A model of a limit that is a window knows this: its meter, and how it is written down.

// spentTicks are more than a window of a model has.
const spentTicks = 8

// admit counts units in the meter.
func (w *world) admit(units int64) {
	if !w.limit.Windowed() {
		w.x = max(0, w.x+units)
		return
	}
	w.spent[0] += units
	w.worst()
}

// ages lets the meter of a window go on by a tick.
func (w *world) ages() {
	if !w.limit.Windowed() {
		return
	}
	length := exact.Micros(w.limit.Per)
	if w.back > 0 {
		if w.server()%length == 0 {
			w.spent[0], w.spent[1], w.spent[2] = w.spent[1], 0, w.spent[0]
		}
		w.worst()
		return
	}
	copy(w.spent[1:], w.spent[:])
	w.spent[0] = 0
	if w.limit.Kind == lease.KindCalendar {
		length = w.now % length // since the boundary
	} else {
		length -= w.tick
	}
	clear(w.spent[length/w.tick+1:])
	w.worst()
}

// stepsBack has the server's clock step back, by less than a period.
func (w *world) stepsBack() {
	length := exact.Micros(w.limit.Per)
	before := w.server() / length
	if w.behind = w.back; w.server()/length < before {
		w.spent[0], w.spent[1], w.spent[2] = w.spent[2], w.spent[0], 0
	}
	w.worst()
}

// worst makes x what the worst window admitted that ends now.
func (w *world) worst() {
	if w.back > 0 {
		w.x = max(w.spent[0], w.spent[1])
		return
	}
	w.x = 0
	sum := int64(0)
	for _, n := range w.spent {
		sum += n
		w.x = max(w.x, sum)
	}
}

// left is level k, or what window k has: without regard to a loss that is waited out.
func (w *world) left(b *Bucket, k int) int64 {
	if k >= len(b.limits) { // there is no bucket yet
		return 0
	}
	if l := b.levelOf(k); l != nil {
		return l.units
	}
	win := b.windowOf(k)
	return win.most - b.ring.ledger() - win.sum
}

// units is the level of limit k, if there is one.
func (d *describer) units(b *Bucket, k int) int64 {
	if k < len(b.limits) && b.levelOf(k) != nil {
		return b.levelOf(k).units
	}
	return 0
}

// windows describes what the windows of the bucket count.
func (d *describer) windows(to []byte, w *world) []byte {
	s := &w.bucket
	if !w.limit.Windowed() && !slices.ContainsFunc(s.config.Limits, lease.Limit.Windowed) {
		return to
	}
	for k := range s.limits {
		if win := s.windowOf(k); win != nil {
			to = d.window(to, w, win, w.now)
		}
	}
	return put(to, d.near(s.frozen-w.now-w.grain+1))
}

// window describes win, which was advanced up to the time at.
func (d *describer) window(to []byte, w *world, win *window, at int64) []byte {
	if win.cells == nil {
		return put(to, win.sum, d.near(w.now-w.now%win.Tick-win.period*win.Tick), d.near(w.now-win.begun))
	}
	to = put(to, d.near((at/win.Cell-win.first)*w.grain))
	for j := win.first; j <= win.first+win.Tick/win.Cell+1; j++ {
		to = put(to, *win.slot(j))
	}
	return to
}
