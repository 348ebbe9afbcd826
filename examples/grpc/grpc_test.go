package main

import (
	"context"
	"errors"
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
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// hourly is a burst of n, with no refill during a test.
func hourly(n int64) hybrid.Limit { return hybrid.PerHour(1).WithBurst(n) }

// plenty returns limits that no test reaches.
func plenty() settings {
	n := hourly(1e5)
	return settings{user: n, address: n, everybody: n, messages: n, wait: time.Minute}
}

// bubble runs body in virtual time, with a server on its own limits and a connection to it. In the end it
// checks that the limiters' books balance.
func bubble(t *testing.T, s settings, body func(t *testing.T, conn *grpc.ClientConn, l *limits),
	options ...grpc.DialOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, err := newLimits(memory.New(nil), s)
		testkit.NoErr(t, err)
		t.Cleanup(func() {
			testkit.NoErr(t, l.shutdown(context.Background()))
			for _, limiter := range l.limiters {
				stats := limiter.Stats()
				testkit.Check(t, stats.Conserved() && stats.Waiting == 0, "the books do not balance: %+v", stats)
			}
		})
		body(t, connect(t, newServer(l), options...), l)
	})
}

// connect serves server on a network in memory, and returns a connection to it.
func connect(t *testing.T, server *grpc.Server, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	pipes := testnet.Listen()
	go server.Serve(pipes)
	t.Cleanup(server.Stop)
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return pipes.Dial(ctx, "", "") }
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
	s := plenty()
	s.user = hourly(10)
	bubble(t, s, func(t *testing.T, conn *grpc.ClientConn, _ *limits) {
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
	s, patient := plenty(), grpc.WithUnaryInterceptor(comeBack(10))
	s.user = hybrid.Every(100 * time.Millisecond)
	bubble(t, s, func(t *testing.T, conn *grpc.ClientConn, l *limits) {
		from := time.Now()
		for range 8 {
			testkit.NoErr(t, unary(by("ann"), conn))
		}
		took, stats := time.Since(from), l.limiters[0].Stats()
		testkit.Check(t, took >= 700*time.Millisecond && took < 800*time.Millisecond,
			"8 calls in %v, at one every 100 ms", took)
		testkit.Check(t, stats.Admitted == 8 && stats.Denied <= 7,
			"%d admitted, %d denied", stats.Admitted, stats.Denied)
	}, patient)

	s.user = hourly(1)
	bubble(t, s, func(t *testing.T, conn *grpc.ClientConn, l *limits) {
		testkit.NoErr(t, unary(by("ann"), conn))
		from := time.Now()
		ctx, cancel := context.WithTimeout(by("ann"), time.Minute)
		defer cancel()
		err := unary(ctx, conn)
		_, retry := retryAfter(err)
		testkit.Check(t, retry && l.limiters[0].Stats().Denied == 1 && time.Since(from) < time.Second,
			"%v, want the denial at once", err)
	}, patient)
}

// TestEveryLimitHolds: the limits by user, by address and altogether hold, and each call takes from
// all or none.
func TestEveryLimitHolds(t *testing.T) {
	admitted := func(user string, conn *grpc.ClientConn) (n int) {
		for range 10 {
			if unary(by(user), conn) == nil {
				n++
			}
		}
		return n
	}
	s := plenty()
	s.user, s.everybody = hourly(3), hourly(5)
	bubble(t, s, func(t *testing.T, conn *grpc.ClientConn, l *limits) {
		ann, bob := admitted("ann", conn), admitted("bob", conn)
		testkit.Check(t, ann == 3 && bob == 2, "ann has %d, bob %d; want 3, and the 2 left", ann, bob)
		for _, limiter := range l.limiters[:3] {
			stats := limiter.Stats()
			testkit.Check(t, stats.Admitted == 5, "%s: %d tokens", stats.Name, stats.Admitted)
		}
	})
	s = plenty()
	s.address = hourly(4)
	bubble(t, s, func(t *testing.T, conn *grpc.ClientConn, _ *limits) {
		ann, bob := admitted("ann", conn), admitted("bob", conn)
		testkit.Check(t, ann == 4 && bob == 0, "ann has %d, bob %d of one address; want 4 and 0", ann, bob)
		client := healthpb.NewHealthClient(conn)
		for range 10 {
			_, err := client.Check(by("ann"), &healthpb.HealthCheckRequest{})
			testkit.Check(t, err == nil, "a health check is limited: %v", err)
		}
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
	s := plenty()
	s.user, s.messages, s.wait = hourly(3), hourly(12), 0
	bubble(t, s, func(t *testing.T, conn *grpc.ClientConn, l *limits) {
		for i, want := range []struct {
			answered int
			denied   bool
		}{{8, false}, {4, true}, {0, true}, {0, true}} {
			n, err := duplex(by("ann"), conn, 8)
			_, retry := retryAfter(err)
			testkit.Check(t, n == want.answered && retry == want.denied,
				"stream %d: %d answers, %v", i, n, err)
		}
		users, messages := l.limiters[0].Stats(), l.limiters[3].Stats()
		testkit.Check(t, users.Admitted == 3 && messages.Admitted == 12,
			"%d streams, %d messages", users.Admitted, messages.Admitted)
	})
}

// TestMessagesWaitForTheirTurn: a stream goes as fast as its limit, and none of it is denied.
func TestMessagesWaitForTheirTurn(t *testing.T) {
	s := plenty()
	s.messages = hybrid.Every(50 * time.Millisecond)
	bubble(t, s, func(t *testing.T, conn *grpc.ClientConn, l *limits) {
		from := time.Now()
		n, err := duplex(by("ann"), conn, 10)
		took := time.Since(from)
		testkit.Check(t, n == 10 && err == nil, "%d messages, %v", n, err)
		testkit.Check(t, took >= 450*time.Millisecond && took < 500*time.Millisecond,
			"%d messages in %v, at one every 50 ms", n, took)
		testkit.Check(t, l.limiters[3].Stats().Admitted == 10, "%+v", l.limiters[3].Stats())
	})
}

// TestEachReasonHasItsCode: a client can tell a limit from its own mistake, and from an outage.
func TestEachReasonHasItsCode(t *testing.T) {
	bubble(t, plenty(), func(t *testing.T, conn *grpc.ClientConn, _ *limits) {
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
	s := plenty()
	s.user = hourly(1)
	bubble(t, s, func(t *testing.T, _ *grpc.ClientConn, l *limits) {
		server := grpc.NewServer(grpc.UnaryInterceptor(ratelimit.UnaryServerInterceptor(l.calls)))
		pb.RegisterTestServiceServer(server, echo{})
		conn := connect(t, server)
		testkit.NoErr(t, unary(by("ann"), conn))
		denied, nobody := unary(by("ann"), conn), unary(context.Background(), conn)
		_, retry := retryAfter(denied)
		testkit.Check(t, status.Code(denied) == codes.ResourceExhausted && !retry, "%v", denied)
		testkit.Check(t, status.Code(nobody) == codes.ResourceExhausted, "%v", nobody)
	})
}
