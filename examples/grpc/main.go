// Command grpc is a gRPC service whose calls are limited by user, by address and altogether, and a
// client that retries when the server says. Run it in the folder examples:
//
//	go run ./grpc -serve                                  # limits of this process alone
//	go run ./grpc -serve -redis redis://localhost:6379    # limits that all such servers share
//	go run ./grpc -user ann -n 20                         # 20 calls: those above the limit come late
//	go run ./grpc -user ann -n 20 -patient=false          # 20 calls: those above the limit fail
//
// Copy limit.go into a service: keys, statuses and interceptors. Copy client.go into a client.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing" // an existing generated service
	"google.golang.org/grpc/metadata"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
	"github.com/yuzhi-go/yuzhi/lease"
)

func main() {
	address := flag.String("address", "localhost:50051", "where the service is")
	serves := flag.Bool("serve", false, "be the server and not the client")
	user := flag.String("user", "ann", "who calls")
	n := flag.Int("n", 10, "how many calls")
	patient := flag.Bool("patient", true, "call again when the server says")
	store.Main("grpc-example", func(ctx context.Context, buckets lease.Store) error {
		if *serves {
			return serve(ctx, *address, buckets)
		}
		return call(ctx, *address, *user, *n, *patient)
	})
}

// serve runs the service until ctx ends, and then gives back its limiters' tokens.
func serve(ctx context.Context, address string, buckets lease.Store) error {
	limits, err := newLimits(buckets, defaults)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := newServer(limits)
	context.AfterFunc(ctx, server.GracefulStop)
	log.Printf("serving at %v", listener.Addr())
	err = server.Serve(listener)
	ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, limits.shutdown(ending))
}

// newServer returns an echo server with limits.
func newServer(l *limits) *grpc.Server {
	server := grpc.NewServer(
		grpc.UnaryInterceptor(limitUnary(l.calls)), grpc.StreamInterceptor(limitStream(l.calls, l.messages)))
	pb.RegisterTestServiceServer(server, echo{})
	healthpb.RegisterHealthServer(server, health.NewServer())
	return server
}

type echo struct {
	pb.UnimplementedTestServiceServer
}

func (echo) UnaryCall(_ context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Payload: r.GetPayload()}, nil
}

func (echo) FullDuplexCall(s pb.TestService_FullDuplexCallServer) error {
	for {
		r, err := s.Recv()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = s.Send(&pb.StreamingOutputCallResponse{Payload: r.GetPayload()})
		}
		if err != nil {
			return err
		}
	}
}

// call makes n calls, one after the other, and prints the result of each.
func call(ctx context.Context, address, user string, n int, patient bool) error {
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if patient {
		options = append(options, grpc.WithUnaryInterceptor(comeBack(10)))
	}
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, userField, user)
	for i := range n {
		from := time.Now()
		_, err := pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{})
		log.Printf("call %d after %v: %v", i+1, time.Since(from).Round(time.Millisecond), err)
	}
	return nil
}
