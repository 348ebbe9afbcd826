package engine

// This file is the script that calls run: a server that has gone does not know it any more, answers
// so (NOSCRIPT), and the calls are sent once more, with the script.

// script says whether a batch brings it.
type script uint8

const (
	known   script = iota // no: the server has it, as far as one knows
	unknown               // no, and the server has answered that it does not
	brought               // yes
)

// scriptTrips is how many round trips bring it: 64 KB, of which TCP sends ten segments over a new
// connection, and twice as many after each answer.
const scriptTrips = 3

// bring sends b once more, with the script. Its answer has its time from now on, as long as any
// other, and the refusal was its round trip: that is what redisbucket and hybrid make of it.
func (n *network) bring(b *batch) {
	if b.wait != awaited || b.p.life != b.life {
		n.end(b)
		return
	}
	took := b.p.local(n.time.now).Sub(b.Sent())
	b.script, b.refusal, b.before = brought, took-b.before, took
	n.send(b)
}

// upload is what the script that b brings takes before its last part is on its way.
func (n *network) upload(b *batch) (takes int64) {
	if b.script == brought {
		for range scriptTrips - 1 {
			takes += n.s.RoundTrip.Sample(&n.stream)
		}
	}
	return takes
}
