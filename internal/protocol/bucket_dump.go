package protocol

import (
	"maps"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Executed returns how many calls b has executed, without those that it answered from a record.
func (b *Bucket) Executed() int64 { return b.executed }

// Level returns the whole tokens that every limit had when b was last settled; 0 if b does not exist.
func (b *Bucket) Level() int64 {
	if !b.exists {
		return 0
	}
	return max(0, b.available(0))
}

// Ledger returns the tokens that processes hold, as last reported to b.
func (b *Bucket) Ledger() int64 { return b.ring.ledger() }

// Clone returns a deep copy of b, such as the state of a replica whose replication has stopped.
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

// Dump returns a copy of the whole state of b.
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
	for k, l := range b.limits {
		l.dump(k, &d)
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
	for k, l := range b.limits {
		l.pass(m, b.now)
		l.restore(k, d)
	}
	return b
}

// At returns d as of the server time clock, with the records whose lease has not ended, and the result of
// Inspect at that time. d must be the dump of a bucket with a valid Config.
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
