// Package testnet has the networks of the examples' tests: one in memory, over which a test may
// have virtual time, and a Redis whose clients outlast a pause of the machine.
package testnet

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
)

// Pipes is a network in memory: a listener, and Dial reaches it.
type Pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// Listen returns a network whose only listener is the result.
func Listen() *Pipes {
	closed := make(chan struct{})
	return &Pipes{make(chan net.Conn), closed, sync.OnceFunc(func() { close(closed) })}
}

// Accept returns the next connection that Dial opens.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Dial. Open connections stay open.
func (p *Pipes) Close() error {
	p.close()
	return nil
}

// Addr returns the address of every connection.
func (p *Pipes) Addr() net.Addr { return conn{}.RemoteAddr() }

// Dial opens a connection. It ignores network and address.
func (p *Pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- conn{there}:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// conn is the server's end of a connection, with an address that it can limit by.
type conn struct{ net.Conn }

func (conn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Patience is the query of a Redis URL whose client outlasts a pause of the machine.
const Patience = "?dial_timeout=1m&read_timeout=1m&write_timeout=1m&pool_timeout=1m"

// Redis starts a server that ends with the test, and returns its URL.
func Redis(t testing.TB) (url string) {
	t.Helper()
	return "redis://" + redistest.Start(t).Addr + "/0" + Patience
}
