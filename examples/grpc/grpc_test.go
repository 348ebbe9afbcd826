package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/rpclimit"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// hourly is a burst of n, with no refill during a test.
func hourly(n int64) hybrid.Limit { return hybrid.PerHour(1).WithBurst(n) }

// plenty is a limit that no test reaches.
var plenty = hourly(1e5)

// bubble runs body in virtual time, with a server on its own limits and a connection to it. In the end it
// checks that the limiters' books balance.
func bubble(t *testing.T, calls, messages hybrid.Limit,
	body func(t *testing.T, conn *grpc.ClientConn, l limits), options ...grpc.DialOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, err := newLimits(memory.New(nil), calls, messages)
		testkit.NoErr(t, err)
		t.Cleanup(func() {
			for _, limiter := range []*hybrid.Limiter{l.calls, l.messages} {
				testkit.NoErr(t, limiter.Shutdown(context.Background()))
				stats := limiter.Stats()
				testkit.Check(t, stats.Conserved() && stats.Waiting == 0, "the books do not balance: %+v", stats)
			}
		})
		body(t, connect(t, l.server(), options...), l)
	})
}

// connect serves server, as an echo, on a network in memory, and returns a connection to it.
func connect(t *testing.T, server *grpc.Server, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	pb.RegisterTestServiceServer(server, echo{})
	pipes := bufconn.Listen(1 << 16) // a network in memory
	go server.Serve(pipes)
	t.Cleanup(server.Stop)
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return pipes.DialContext(ctx) }
	options = append(options, grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:///server", options...)
	testkit.NoErr(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func by(user string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), userField, user)
}

func unary(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{})
	return err
}

// TestCallsAboveTheLimitSayWhenToComeBack: as many calls are admitted as the burst has, of each
// user; the others are ResourceExhausted and have a RetryInfo.
func TestCallsAboveTheLimitSayWhenToComeBack(t *testing.T) {
	bubble(t, hourly(10), plenty, func(t *testing.T, conn *grpc.ClientConn, _ limits) {
		for _, user := range []string{"ann", "bob"} {
			admitted := 0
			for range 15 {
				err := unary(by(user), conn)
				after, retry := retryAfter(err)
				testkit.Check(t, err == nil || retry && after > 59*time.Minute && after <= time.Hour,
					"%v, to come back after %v", err, after)
				tells := strings.Contains(status.Convert(err).Message(), user)
				testkit.Check(t, !tells, "it tells the key: %v", err)
				if err == nil {
					admitted++
				}
			}
			testkit.Check(t, admitted == 10, "%s has %d calls, want 10", user, admitted)
		}
	})
}

// TestAClientComesBackByItself: with the client's interceptor every call succeeds and is denied
// once at most. A call with a deadline before the time to come back fails at once.
func TestAClientComesBackByItself(t *testing.T) {
	patient := grpc.WithUnaryInterceptor(comeBack)
	bubble(t, hybrid.Every(100*time.Millisecond), plenty, func(t *testing.T, conn *grpc.ClientConn, l limits) {
		from := time.Now()
		for range 8 {
			testkit.NoErr(t, unary(by("ann"), conn))
		}
		took, stats := time.Since(from), l.calls.Stats()
		testkit.Check(t, took >= 700*time.Millisecond && took < 800*time.Millisecond,
			"8 calls in %v, at one every 100 ms", took)
		testkit.Check(t, stats.Admitted == 8 && stats.Denied <= 7,
			"%d admitted, %d denied", stats.Admitted, stats.Denied)
	}, patient)

	bubble(t, hourly(1), plenty, func(t *testing.T, conn *grpc.ClientConn, l limits) {
		testkit.NoErr(t, unary(by("ann"), conn))
		from := time.Now()
		ctx, cancel := context.WithTimeout(by("ann"), time.Minute)
		defer cancel()
		err := unary(ctx, conn)
		_, retry := retryAfter(err)
		testkit.Check(t, retry && l.calls.Stats().Denied == 1 && time.Since(from) < time.Second,
			"%v, want the denial at once", err)
	}, patient)
}

// TestServersShareALimitInRedis: a user has as many calls as the burst has, of two servers together.
func TestServersShareALimitInRedis(t *testing.T) {
	testnet.OnRedis(t, func(open func() lease.Store) error {
		admitted := 0
		for range 2 {
			l, err := newLimits(open(), hourly(10), plenty)
			testkit.NoErr(t, err)
			conn := connect(t, l.server())
			for range 6 {
				if unary(by("ann"), conn) == nil {
					admitted++
				}
			}
			if err := errors.Join(l.calls.Shutdown(t.Context()), l.messages.Shutdown(t.Context())); err != nil {
				return err
			}
		}
		if admitted != 10 {
			return fmt.Errorf("%d calls are admitted, want 10", admitted)
		}
		return nil
	})
}

// duplex opens a stream and sends messages until one is not answered. It returns the number of
// answers.
func duplex(ctx context.Context, conn *grpc.ClientConn, messages int) (answered int, err error) {
	s, err := pb.NewTestServiceClient(conn).FullDuplexCall(ctx)
	if err != nil {
		return 0, err
	}
	for ; answered < messages; answered++ {
		if err := s.Send(&pb.StreamingOutputCallRequest{}); err != nil && err != io.EOF {
			return answered, err
		}
		if _, err := s.Recv(); err != nil {
			return answered, err
		}
	}
	return answered, s.CloseSend()
}

// TestStreamsAreLimited: streams are limited when they are opened, and by message.
func TestStreamsAreLimited(t *testing.T) {
	bubble(t, hourly(3), hourly(12), func(t *testing.T, conn *grpc.ClientConn, l limits) {
		for i, want := range []struct {
			answered int
			denied   bool
		}{{8, false}, {4, true}, {0, true}, {0, true}} {
			n, err := duplex(by("ann"), conn, 8)
			_, retry := retryAfter(err)
			testkit.Check(t, n == want.answered && retry == want.denied,
				"stream %d: %d answers, %v", i, n, err)
		}
		calls, messages := l.calls.Stats(), l.messages.Stats()
		testkit.Check(t, calls.Admitted == 3 && messages.Admitted == 12,
			"%d streams, %d messages", calls.Admitted, messages.Admitted)
	})
}

// TestMessagesWaitForTheirTurn: a stream goes as fast as its limit, and none of it is denied.
func TestMessagesWaitForTheirTurn(t *testing.T) {
	bubble(t, plenty, hybrid.Every(50*time.Millisecond), func(t *testing.T, conn *grpc.ClientConn, l limits) {
		from := time.Now()
		n, err := duplex(by("ann"), conn, 10)
		took := time.Since(from)
		testkit.Check(t, n == 10 && err == nil, "%d messages, %v", n, err)
		testkit.Check(t, took >= 450*time.Millisecond && took < 500*time.Millisecond,
			"%d messages in %v, at one every 50 ms", n, took)
		testkit.Check(t, l.messages.Stats().Admitted == 10, "%+v", l.messages.Stats())
	})
}

// TestEachReasonHasItsCode: a client can tell a limit from its own mistake, and from an outage.
func TestEachReasonHasItsCode(t *testing.T) {
	bubble(t, plenty, plenty, func(t *testing.T, conn *grpc.ClientConn, _ limits) {
		err := unary(context.Background(), conn)
		testkit.Check(t, status.Code(err) == codes.InvalidArgument, "without a user: %v", err)
		err = unary(metadata.AppendToOutgoingContext(by("ann"), userField, "bob"), conn)
		testkit.Check(t, status.Code(err) == codes.InvalidArgument, "of two users: %v", err)
		for want, err := range map[codes.Code]error{
			codes.InvalidArgument:  hybrid.ErrExceedsBurst,
			codes.Unavailable:      hybrid.ErrUnavailable,
			codes.Canceled:         errors.Join(errors.New("hybrid: take"), context.Canceled),
			codes.DeadlineExceeded: hybrid.ErrWouldExceedDeadline,
		} {
			got := answerOf(err)
			_, retry := retryAfter(got)
			testkit.Check(t, status.Code(got) == want && !retry, "%v becomes %v, want %v", err, got, want)
		}
	})
}

// TestTheMiddlewareLosesWhy shows why this example has its own interceptors: those of
// go-grpc-middleware also limit, but drop RetryInfo and the code. If it fails, ours can be removed.
func TestTheMiddlewareLosesWhy(t *testing.T) {
	bubble(t, hourly(1), plenty, func(t *testing.T, _ *grpc.ClientConn, l limits) {
		limiter := rpclimit.New(l.calls, userOf, rpclimit.Status(answerOf))
		conn := connect(t, grpc.NewServer(grpc.UnaryInterceptor(ratelimit.UnaryServerInterceptor(limiter))))
		testkit.NoErr(t, unary(by("ann"), conn))
		denied, nobody := unary(by("ann"), conn), unary(context.Background(), conn)
		_, retry := retryAfter(denied)
		testkit.Check(t, status.Code(denied) == codes.ResourceExhausted && !retry, "%v", denied)
		testkit.Check(t, status.Code(nobody) == codes.ResourceExhausted, "%v", nobody)
	})
}
