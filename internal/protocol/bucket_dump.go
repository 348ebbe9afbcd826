package protocol

import (
	"maps"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// BucketDump is the whole state of a Bucket, for comparison with a bucket that a store keeps. Levels are in
// units (see exact.Scale), times and durations in microseconds.
type BucketDump struct {
	Exists bool
	Config lease.Config // TTL is the T in force; Limits are in force, or suspended by Switch
	Switch Switch

	Clock, Now, Created, Epoch, Counter, Frozen, SetAt, Keep int64
	Spent, Denied                                            int64
	Proposed, ProposedAt, StoodAt                            int64

	Level, Rest [lease.LimitsMax]int64
	Windows     [lease.LimitsMax]WindowDump // windows only

	Width, MovedAt int64
	Held, Weight   [ringSlices]int64

	Share                              float64
	Updated, ContendedUntil, IdleSince int64

	Records map[string]RecordDump // records of this epoch that are still in the ring
}

// WindowDump has the charges of one window, in tokens. Cell j of a sliding window is in slot j mod
// len(Cells). Period is the number of a calendar's period, which began at the running time Begun.
type WindowDump struct {
	Sum           int64
	Cells         [windowSlots]int64
	Period, Begun int64
}

// Executed returns how many calls b has executed, without retries.
func (b *Bucket) Executed() int64 { return b.executed }

// Level returns how many whole tokens every limit had at the last call; 0 if b does not exist.
func (b *Bucket) Level() int64 {
	if !b.exists {
		return 0
	}
	return max(0, b.available(0))
}

// Ledger returns the tokens that processes hold, as last reported to b.
func (b *Bucket) Ledger() int64 { return b.ring.ledger() }

// Clone returns a deep copy of b.
func (b *Bucket) Clone() *Bucket {
	c := b.copied()
	c.records = maps.Clone(b.records)
	for holder, r := range c.records {
		copied := *r
		c.records[holder] = &copied
	}
	return c
}

// DropRecord forgets one holder's record, as a server that evicts keys may do.
func (b *Bucket) DropRecord(holder string) { delete(b.records, holder) }

// Dump returns the state of b.
func (b *Bucket) Dump() BucketDump {
	if !b.exists {
		return BucketDump{}
	}
	d := BucketDump{
		Exists: true, Config: b.config, Switch: b.switched, Clock: b.clock, Now: b.now, Created: b.created,
		Epoch: b.epoch, Counter: b.counter, Spent: b.spent, Denied: b.denied,
		Frozen: b.frozen, SetAt: b.setAt, Keep: b.keep,
		Proposed: b.proposed, ProposedAt: b.proposedAt, StoodAt: b.stoodAt,
		Width: b.ring.width, MovedAt: b.ring.movedAt,
		Held: b.ring.held, Weight: b.ring.weight,
		Share: b.fair.share, Updated: b.fair.updated, ContendedUntil: b.fair.contendedUntil,
		IdleSince: b.fair.idleSince,
		Records:   make(map[string]RecordDump),
	}
	for k, t := range b.limits {
		switch t := t.(type) {
		case *level:
			d.Level[k], d.Rest[k] = t.units, t.rest
		case *window:
			w := &d.Windows[k]
			w.Sum, w.Period, w.Begun = t.sum, t.period, t.begun
			copy(w.Cells[:], t.cells)
		}
	}
	for holder, r := range b.records {
		if _, live := b.locate(r); live {
			d.Records[holder] = r.RecordDump
		}
	}
	return d
}

// AtRest derives the numbers that a bucket at rest does not store (3.9). d.Config must be valid.
func (d BucketDump) AtRest() BucketDump {
	d.Clock, d.Created, d.Frozen, d.Keep = d.Now, d.Epoch, 0, 0
	d.StoodAt, d.Proposed, d.ProposedAt = d.Now, exact.Micros(d.Config.TTL), d.Now
	b := d.bucket()
	b.normalise()
	b.remember()
	return b.Dump()
}

// bucket returns the Bucket of d without ring, fair share and records.
func (d *BucketDump) bucket() Bucket {
	b := Bucket{
		exists: true, config: d.Config, switched: d.Switch, limits: tallies(&d.Config),
		moment: moment{clock: d.Clock, now: d.Now, frozen: d.Frozen, setAt: d.SetAt}, created: d.Created,
		epoch: d.Epoch, counter: d.Counter, spent: d.Spent, denied: d.Denied, keep: d.Keep, stoodAt: d.StoodAt,
		ttl: exact.Micros(d.Config.TTL), proposed: d.Proposed, proposedAt: d.ProposedAt,
	}
	m := b.at()
	for k, t := range b.limits {
		t.pass(m, b.now)
		switch t := t.(type) {
		case *level:
			t.units, t.rest = d.Level[k], d.Rest[k]
		case *window:
			w := &d.Windows[k]
			t.sum, t.period, t.begun = w.Sum, w.Period, w.Begun
			copy(t.cells, w.Cells[:])
		}
	}
	return b
}

// At returns d and its State at the server's time clock, without dead records. d.Config must be valid.
func (d BucketDump) At(clock int64) (BucketDump, lease.State) {
	b := d.bucket()
	b.ring = ring{width: d.Width, base: d.Now / d.Width, movedAt: d.MovedAt, held: d.Held, weight: d.Weight}
	b.fair = fair{share: d.Share, updated: d.Updated, contendedUntil: d.ContendedUntil,
		idleSince: d.IdleSince}
	b.records = make(map[string]*record, len(d.Records))
	for holder, r := range d.Records {
		b.records[holder] = &record{r, d.Epoch}
	}
	b.settle(clock)
	for _, r := range b.records {
		if at, live := b.locate(r); live {
			r.Ends = at
		}
	}
	return b.Dump(), b.state()
}
