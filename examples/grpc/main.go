// Command grpc is a gRPC service with limits for each user, of calls and of messages in streams, and
// a client that retries when the server says. Run it in the folder examples:
//
//	go run ./grpc -serve                                  # limits of this process alone
//	go run ./grpc -serve -redis redis://localhost:6379    # limits that all such servers share
//	go run ./grpc                                         # 20 calls: those above the limit come late
//
// Copy limit.go into a service: keys, statuses and interceptors. Copy comeBack into a client.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing" // an existing generated service
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

const address = "localhost:50051"

func main() {
	serves := flag.Bool("serve", false, "be the server and not the client")
	store.Main("grpc-example", func(ctx context.Context, buckets lease.Store) error {
		if !*serves {
			return call(ctx)
		}
		limits, err1 := newLimits(buckets, hybrid.PerSecond(5), hybrid.PerSecond(10))
		listener, err2 := net.Listen("tcp", address)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		server := limits.server()
		pb.RegisterTestServiceServer(server, echo{})
		context.AfterFunc(ctx, server.GracefulStop)
		err := server.Serve(listener)
		ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return errors.Join(err, limits.calls.Shutdown(ending), limits.messages.Shutdown(ending)) // tokens go back
	})
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

// call makes 20 calls, one after the other, and prints the result of each.
func call(ctx context.Context) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(comeBack))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, userField, "ann")
	for i := range 20 {
		from := time.Now()
		_, err := pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{})
		log.Printf("call %d after %v: %v", i+1, time.Since(from).Round(time.Millisecond), err)
	}
	return nil
}

// comeBack retries a call at the time in the server's RetryInfo, until it is admitted. A call whose
// deadline comes before that fails at once.
func comeBack(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	for {
		err := invoke(ctx, method, request, reply, conn, options...)
		after, ok := retryAfter(err)
		deadline, hurried := ctx.Deadline()
		if !ok || hurried && time.Until(deadline) < after {
			return err
		}
		select {
		case <-time.After(after):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// retryAfter returns the delay that the server asks for in a denial. ok is false if it names none.
func retryAfter(err error) (after time.Duration, ok bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.RetryInfo); is {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}
