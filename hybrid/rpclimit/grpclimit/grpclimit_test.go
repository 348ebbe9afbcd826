package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/rpclimit"
	"github.com/yuzhi-go/yuzhi/hybrid/rpclimit/grpclimit"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

const userField = "x-user"

// limits are those of each user: calls and opened streams, and messages received in streams.
type limits struct{ calls, messages *hybrid.Limiter }

func newLimits(t *testing.T, store lease.Store, calls, messages hybrid.Limit) limits {
	t.Helper()
	c, err := hybrid.New(store, hybrid.Config{Name: "calls", Limits: []hybrid.Limit{calls}})
	testkit.NoErr(t, err)
	m, err := hybrid.New(store, hybrid.Config{Name: "messages", Limits: []hybrid.Limit{messages}})
	testkit.NoErr(t, err)
	return limits{c, m}
}

// server limits calls and streams, and has messages wait for up to a minute.
func (l limits) server() *grpc.Server {
	user := grpclimit.Metadata(userField)
	calls, messages := rpclimit.New(l.calls, user), rpclimit.New(l.messages, user, rpclimit.Wait(time.Minute))
	return grpc.NewServer(grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(calls)),
		grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(calls, messages)))
}

type echo struct {
	pb.UnimplementedTestServiceServer
}

func (echo) UnaryCall(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{}, nil
}

func (echo) FullDuplexCall(s pb.TestService_FullDuplexCallServer) error {
	for {
		if _, err := s.Recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.Send(&pb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

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
		l := newLimits(t, memory.New(nil), calls, messages)
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
				after, retry := grpclimit.RetryAfter(err)
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
	patient := grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(nil))
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
		_, retry := grpclimit.RetryAfter(err)
		testkit.Check(t, retry && l.calls.Stats().Denied == 1 && time.Since(from) < time.Second,
			"%v, want the denial at once", err)
	}, patient)
}

// TestServersShareALimitInRedis: a user has as many calls as the burst has, of two servers together.
func TestServersShareALimitInRedis(t *testing.T) {
	server, admitted := redistest.Start(t), 0
	for range 2 {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer rdb.Close()
		store, err := redisbucket.New(rdb, redisbucket.Config{})
		testkit.NoErr(t, err)
		l := newLimits(t, store, hourly(10), plenty)
		conn := connect(t, l.server())
		// A machine that stalls must not turn a slow lease call into a denial.
		testkit.NoErr(t, errors.Join(l.calls.Ping(t.Context()), l.messages.Ping(t.Context())))
		for range 6 {
			if unary(by("ann"), conn) == nil {
				admitted++
			}
		}
		testkit.NoErr(t, errors.Join(l.calls.Shutdown(t.Context()), l.messages.Shutdown(t.Context())))
	}
	testkit.Check(t, admitted == 10, "%d calls are admitted, want 10", admitted)
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
			_, retry := grpclimit.RetryAfter(err)
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
		unknown := fmt.Errorf("%w: %w", rpclimit.ErrNoKey, status.Error(codes.Unauthenticated, "no user"))
		blocked := rpclimit.Denial{Result: hybrid.Result{Limit: hybrid.Blocked, RetryAfter: time.Hour}}
		for err, want := range map[error]codes.Code{
			hybrid.ErrExceedsBurst: codes.InvalidArgument,
			hybrid.ErrInvalidN:     codes.InvalidArgument,
			hybrid.ErrInvalidKey:   codes.InvalidArgument,
			hybrid.ErrUnavailable:  codes.Unavailable,
			errors.Join(errors.New("hybrid: take"), context.Canceled): codes.Canceled,
			hybrid.ErrWouldExceedDeadline:                             codes.DeadlineExceeded,
			blocked:                                                   codes.ResourceExhausted,
			unknown:                                                   codes.Unauthenticated,
		} {
			got := grpclimit.Status(err)
			_, retry := grpclimit.RetryAfter(got)
			testkit.Check(t, status.Code(got) == want && !retry, "%v becomes %v, want %v", err, got, want)
			says := status.Convert(got).Message()
			plain := !strings.Contains(says, "rpc error") && !strings.Contains(says, "1h")
			testkit.Check(t, plain, "%q", says)
		}
	})
}

// TestACallThatIsNeverAdmittedIsNotRepeated: a call that costs more than the burst, or less than 0, is
// InvalidArgument without a RetryInfo, and an rpclimit.Status that returns nil does not admit it.
func TestACallThatIsNeverAdmittedIsNotRepeated(t *testing.T) {
	user := grpclimit.Metadata(userField)
	for _, cost := range []int64{11, -1} {
		bubble(t, hourly(10), plenty, func(t *testing.T, _ *grpc.ClientConn, l limits) {
			for _, option := range []rpclimit.Option{
				rpclimit.Wait(0), rpclimit.Status(func(error) error { return nil }),
			} {
				calls := rpclimit.New(l.calls, user, option,
					rpclimit.Cost(func(context.Context) int64 { return cost }))
				limited := grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(calls))
				conn := connect(t, grpc.NewServer(limited))
				err := unary(by("ann"), conn)
				_, retry := grpclimit.RetryAfter(err)
				refused := status.Code(err) == codes.InvalidArgument && !retry
				testkit.Check(t, refused, "cost %d: %v", cost, err)
			}
		})
	}
}

// TestADenialHasAPlainMessage: the message of a status names the limit and does not repeat the code.
func TestADenialHasAPlainMessage(t *testing.T) {
	bubble(t, hourly(1), hourly(1), func(t *testing.T, conn *grpc.ClientConn, _ limits) {
		testkit.NoErr(t, unary(by("ann"), conn))
		_, ofStream := duplex(by("ann"), conn, 1)
		for _, err := range []error{unary(by("ann"), conn), ofStream} {
			const want = "rpclimit: denied by 1/h, retry after 1h0m0s"
			testkit.Check(t, status.Convert(err).Message() == want, "%q", status.Convert(err).Message())
		}
	})
}

// TestAClientObeysNoEmptyRetryInfo: a server that denies and asks for a retry after no time does not make the
// client call it again and again.
func TestAClientObeysNoEmptyRetryInfo(t *testing.T) {
	for _, delay := range []time.Duration{0, -time.Second} {
		denied, err := status.New(codes.ResourceExhausted, "no").WithDetails(
			&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
		testkit.NoErr(t, err)
		calls := 0
		invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			calls++
			testkit.Must(t, calls < 10, "the client spins")
			return denied.Err()
		}
		err = grpclimit.UnaryClientInterceptor(nil)(t.Context(), "/a/b", nil, nil, nil, invoke)
		ends := status.Code(err) == codes.ResourceExhausted && calls == 1
		testkit.Check(t, ends, "%v after %d calls", err, calls)
	}
}

// TestAClientLimitsItself: its calls and messages wait for their turn, and a limit without Wait fails them.
func TestAClientLimitsItself(t *testing.T) {
	one := func(context.Context) (string, error) { return "upstream", nil }
	for name, c := range map[string]struct {
		options []rpclimit.Option
		took    time.Duration
		failed  int
	}{
		"waits": {[]rpclimit.Option{rpclimit.Wait(time.Minute)}, 500 * time.Millisecond, 0},
		"fails": {nil, 0, 5},
	} {
		bubble(t, plenty, plenty, func(t *testing.T, _ *grpc.ClientConn, l limits) {
			slow := hybrid.Every(100 * time.Millisecond)
			own := newLimits(t, memory.New(nil), slow, slow)
			defer own.calls.Close()
			defer own.messages.Close()
			calls := rpclimit.New(own.calls, one, c.options...)
			messages := rpclimit.New(own.messages, one, c.options...)
			conn := connect(t, l.server(), grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(calls)),
				grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(nil, messages)))
			from, failed := time.Now(), 0
			for range 6 {
				if err := unary(by("ann"), conn); err != nil {
					testkit.Check(t, status.Code(err) == codes.ResourceExhausted, "%s: %v", name, err)
					failed++
				}
			}
			took := time.Since(from)
			testkit.Check(t, took >= c.took && took < c.took+50*time.Millisecond && failed == c.failed,
				"%s: 6 calls in %v, %d failed", name, took, failed)
			from = time.Now()
			answered, err := duplex(by("ann"), conn, 6)
			took = time.Since(from)
			testkit.Check(t, took >= c.took && took < c.took+50*time.Millisecond && answered == 6-c.failed &&
				(err == nil) == (c.failed == 0), "%s: 6 messages in %v, %d answered, %v", name, took, answered, err)
		})
	}
}

// TestKeysOfACall: the address has no port, and the method is whole.
func TestKeysOfACall(t *testing.T) {
	for name, c := range map[string]struct {
		key  rpclimit.KeyFunc
		want string
	}{
		"method": {grpclimit.Method, "/grpc.testing.TestService/UnaryCall"}, "peer": {grpclimit.Peer, "bufconn"},
	} {
		bubble(t, plenty, plenty, func(t *testing.T, _ *grpc.ClientConn, l limits) {
			got := ""
			limiter := rpclimit.New(l.calls, func(ctx context.Context) (key string, err error) {
				got, err = c.key(ctx)
				return got, err
			})
			conn := connect(t, grpc.NewServer(grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter))))
			testkit.NoErr(t, unary(by("ann"), conn))
			testkit.Check(t, got == c.want, "%s: %q, want %q", name, got, c.want)
			_, err := c.key(context.Background())
			testkit.Check(t, errors.Is(err, rpclimit.ErrNoKey), "%s: outside a call: %v", name, err)
		})
	}
}

// TestSeveralValuesEndTheSearch: FirstOf does not fall back to the peer where the user is ambiguous.
func TestSeveralValuesEndTheSearch(t *testing.T) {
	key := rpclimit.FirstOf(grpclimit.Metadata("x-user"), func(context.Context) (string, error) { return "peer", nil })
	for want, fields := range map[string]metadata.MD{
		"1:peer": {}, "0:ann": metadata.Pairs("x-user", "ann"), "": metadata.Pairs("x-user", "ann", "x-user", "bob"),
	} {
		got, err := key(metadata.NewIncomingContext(context.Background(), fields))
		testkit.Check(t, got == want && (err == nil) == (want != ""), "%v: %q, %v", fields, got, err)
	}
}

// TestAnAddressCountsAsOne: that of a peer or in a field has no port, and an IPv6 /64 is one key.
func TestAnAddressCountsAsOne(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"fe80::1%eth0": "fe80::/64",
	} {
		at := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 17))
		got, err := grpclimit.Peer(peer.NewContext(context.Background(), &peer.Peer{Addr: at}))
		testkit.Check(t, err == nil && got == want, "the peer %v is %q, want %q: %v", at, got, want, err)
		for _, value := range []string{address, at.String()} {
			ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-real-ip", value))
			got, err = grpclimit.Metadata("x-real-ip")(ctx)
			testkit.Check(t, err == nil && got == want, "%q is %q, want %q: %v", value, got, want, err)
		}
	}
}

func ExampleUnaryServerInterceptor() {
	limiter, err := hybrid.Memory("calls", hybrid.PerHour(2)) // for a fleet: hybrid.Redis
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limited := grpclimit.UnaryServerInterceptor(rpclimit.New(limiter, grpclimit.Metadata("x-user")))
	server := grpc.NewServer(grpc.UnaryInterceptor(limited)) // to register services with
	defer server.Stop()

	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-user", "ann")) // of a call
	for range 3 {
		_, err := limited(ctx, nil, nil, func(context.Context, any) (any, error) { return "served", nil })
		after, denied := grpclimit.RetryAfter(err)
		fmt.Println(status.Code(err), denied && after > 29*time.Minute)
	}
	// Output:
	// OK false
	// OK false
	// ResourceExhausted true
}
