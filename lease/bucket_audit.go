package lease

import "maps"

// What a simulator, an audit and the tests of other packages need to see of a Bucket. Stores do
// not.

// Executed is how many calls b has executed; those that it answered from a record, or refused, do
// not count. An audit needs it to count a repeated grant once.
func (b *Bucket) Executed() int64 { return b.executed }

// Level is the whole tokens that every limit had when b was last settled; 0 for a bucket that does
// not exist.
func (b *Bucket) Level() int64 {
	if !b.exists {
		return 0
	}
	return b.available()
}

// Ledger is the tokens that processes hold, as b last heard.
func (b *Bucket) Ledger() int64 { return b.ring.ledger() }

// Clone is a copy of b that shares nothing with it: what a replica had when it stopped listening.
func (b *Bucket) Clone() *Bucket {
	c := *b
	c.records = maps.Clone(b.records)
	for holder, r := range c.records {
		copied := *r
		c.records[holder] = &copied
	}
	return &c
}

// DropRecord forgets one holder's record, as a server that evicts keys may.
func (b *Bucket) DropRecord(holder string) { delete(b.records, holder) }

// BucketDump is everything a Bucket remembers, to be compared with a bucket that is kept elsewhere.
// Levels are in units (see Scale), times and durations in microseconds, tokens and weights per slot
// of the ring.
type BucketDump struct {
	Exists bool
	Config Config // its TTL is the one in force

	Clock, Now, Created, Epoch, Counter, Frozen, SetAt, Keep, Proposed, ProposedAt int64

	Level, Rest [LimitsMax]int64

	Width, Gen, MovedAt int64
	Held, Weight        [ringSlices]int64

	Share                   float64
	Updated, ContendedUntil int64

	Records map[string]RecordDump // of this epoch and still in the ring; the others are as good as absent
}

// RecordDump is what a Bucket remembers of one holder.
type RecordDump struct {
	Seq, Gen, Slice, Ends, Held, Weight, Granted, Since int64
	Void                                                bool
	Allowance                                           float64
	Last                                                int64
}

// Dump copies everything that b remembers.
func (b *Bucket) Dump() BucketDump {
	if !b.exists {
		return BucketDump{}
	}
	d := BucketDump{
		Exists: true, Config: b.config, Clock: b.clock, Now: b.now, Created: b.created,
		Epoch: b.epoch, Counter: b.counter, Frozen: b.frozen, SetAt: b.setAt, Keep: b.keep,
		Proposed: b.proposed, ProposedAt: b.proposedAt, Level: b.level, Rest: b.rest,
		Width: b.ring.width, Gen: b.ring.gen, MovedAt: b.ring.movedAt, Held: b.ring.held, Weight: b.ring.weight,
		Share: b.fair.share, Updated: b.fair.updated, ContendedUntil: b.fair.contendedUntil,
		Records: make(map[string]RecordDump),
	}
	for holder, r := range b.records {
		if _, live := b.locate(r); !live {
			continue
		}
		d.Records[holder] = RecordDump{
			Seq: r.seq, Gen: r.place.gen, Slice: r.place.slice, Ends: r.place.ends, Held: r.held,
			Weight: r.weight, Granted: r.granted, Since: r.since, Void: r.void,
			Allowance: r.debit.allowance, Last: r.debit.last,
		}
	}
	return d
}
