package arrival

import (
	"sort"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Recording is a trace divided between the processes that replay it. A Recording never changes.
type Recording struct {
	requests []scenario.TraceRequest
	parts    [][]uint32 // for each process, the indices of its requests
	period   int64      // ns from one start of the trace to the next; 0 for a trace that is played once
}

// NewRecording divides a trace between processes. The process numbers in the trace are taken modulo
// processes. A repeated trace starts again one mean gap after its last request, so that the rate stays the
// same. A trace whose requests are all at time 0 is played once.
func NewRecording(t *scenario.Trace, processes int, repeated bool) *Recording {
	n := len(t.Requests)
	r := &Recording{requests: t.Requests, parts: make([][]uint32, processes)}
	for i, q := range t.Requests {
		p := q.Process % processes
		r.parts[p] = append(r.parts[p], uint32(i))
	}
	if repeated && n > 0 {
		first, last := t.Requests[0].At, t.Requests[n-1].At
		r.period = int64(last + (last-first)/time.Duration(max(n-1, 1)))
	}
	return r
}

// Replayer is the Stream of one process of a Recording.
type Replayer struct {
	*Recording
	part  []uint32
	place int   // position of the next request in part
	begun int64 // when the trace last started

	// Key and Cost belong to the request whose time Next returned last. Key is a key number of the trace.
	Key  int
	Cost int64
}

// NewReplayer plays the recorded requests of a process from the time start on.
func NewReplayer(r *Recording, process int, start int64) *Replayer {
	p := &Replayer{Recording: r, part: r.parts[process]}
	if r.period > 0 {
		p.begun = start / r.period * r.period
	}
	p.place = sort.Search(len(p.part), func(i int) bool {
		return p.begun+int64(r.requests[p.part[i]].At) >= start
	})
	return p
}

// Next implements Stream.
func (p *Replayer) Next(now int64) int64 {
	if p.place == len(p.part) {
		if p.period == 0 || p.place == 0 {
			return Never
		}
		p.place, p.begun = 0, p.begun+p.period
	}
	q := &p.requests[p.part[p.place]]
	p.place++
	p.Key, p.Cost = q.Key, q.Cost
	return max(now, p.begun+int64(q.At))
}
