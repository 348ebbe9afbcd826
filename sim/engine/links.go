package engine

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// port is what one process knows of the network.
type port struct {
	links    []*link // to each shard, and last the one for keys whose shard has not answered yet; see linkTo
	copiedAt int64   // when the last second copy of its calls arrives, where they keep their order
	calls    int64   // since the warm-up
}

// link is what one process knows of one shard.
type link struct {
	id       int32
	lastSent clock.Instant
	underWay int
	latency  protocol.Latency
	held     []int32  // entries with a call that waits to travel with others
	open     []*batch // of this instant, in the order in which they were begun
	awaited  []*batch // to this shard, in the order in which they were sent
	breaker  *protocol.Breaker
	lane     lane
	pool     connections
}

// join gives a process that starts its links, which know nothing.
func (n *network) join(p *process, shards int) { n.ports[p.index].links = make([]*link, shards+1) }

// linkOf is the link that e's calls take.
func (n *network) linkOf(e *entry) *link {
	return n.linkFor(e.p, e.shard, e.known)
}

// linkFor is the link that p's calls to a shard take, of a key for which that has answered, or not.
func (n *network) linkFor(p *process, shard int32, known bool) *link {
	if known {
		return n.linkTo(p, int(shard))
	}
	return n.linkTo(p, len(n.ports[p.index].links)-1)
}

// linkTo is p's i-th link, made when it is first used: a process of a large fleet uses few.
func (n *network) linkTo(p *process, i int) *link {
	links := n.ports[p.index].links
	if links[i] == nil {
		links[i] = &link{id: p.index*int32(len(links)) + int32(i)}
	}
	return links[i]
}

// breakerOf is that of e's shard, of which its process knows where each key is.
func (n *network) breakerOf(e *entry) *protocol.Breaker { return n.breakerAt(e.p, e.shard) }

func (n *network) breakerAt(p *process, shard int32) *protocol.Breaker {
	l := n.linkTo(p, int(shard))
	if l.breaker == nil {
		jitter := p.holders // a copy: the stream itself is that of the entries
		l.breaker = protocol.NewBreaker(p.config.Target, p.config.TTL, jitter.Uint64()+uint64(shard))
	}
	return l.breaker
}
