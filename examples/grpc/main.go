// Command grpc is a gRPC service that limits the calls, and the messages in streams, of each user. Its client
// repeats a denied call at the time that the server names. Run grpc in the folder examples, with a Redis:
//
//	go run ./grpc -serve    # any number of servers share the limits
//	go run ./grpc           # 20 calls: calls above the limit take longer
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1" // an existing generated service
	"google.golang.org/grpc/metadata"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/rpclimit"
	"github.com/yuzhi-go/yuzhi/hybrid/rpclimit/grpclimit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

const address = "localhost:50051"

func main() {
	serves := flag.Bool("serve", false, "run the server instead of the client")
	url := flag.String("redis", "redis://localhost:6379?dial_timeout=500ms&read_timeout=500ms", "URL of Redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if !*serves {
		if err := call(ctx); err != nil {
			log.Fatal(err)
		}
		return
	}
	client := redis.NewClient(must(redis.ParseURL(*url)))
	buckets := must(redisbucket.New(client, redisbucket.Config{Prefix: "grpc-example:"}))
	log.Print("ping: ", buckets.Ping(ctx)) // Without a ping, the first requests may be denied.
	listener := must(net.Listen("tcp", address))
	log.Print("shutdown: ", serve(ctx, listener, buckets, hybrid.PerSecond(5), hybrid.PerSecond(10)))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func serve(ctx context.Context, l net.Listener, buckets lease.Store, ofUser, inStreams hybrid.Limit) error {
	calls, err1 := hybrid.New(buckets, hybrid.Config{Name: "calls", Limits: []hybrid.Limit{ofUser}})
	messages, err2 := hybrid.New(buckets, hybrid.Config{Name: "messages", Limits: []hybrid.Limit{inStreams}})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	// This service trusts its clients. A real service takes the user from a verified token.
	user := grpclimit.Metadata("x-user")
	ofCalls, ofMessages := rpclimit.New(calls, user), rpclimit.New(messages, user, rpclimit.Wait(time.Minute))
	server := grpc.NewServer(grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(ofCalls)),
		grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(ofCalls, ofMessages)))
	pb.RegisterHealthServer(server, health.NewServer())
	context.AfterFunc(ctx, server.GracefulStop)
	err := server.Serve(l)
	ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, calls.Shutdown(ending), messages.Shutdown(ending)) // give back tokens
}

// call makes 20 calls, one after another, and prints the result of each call.
func call(ctx context.Context) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(nil)))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "x-user", "ann")
	for i := range 20 {
		from := time.Now()
		_, err := pb.NewHealthClient(conn).Check(ctx, &pb.HealthCheckRequest{})
		log.Printf("call %d after %v: %v", i+1, time.Since(from).Round(time.Millisecond), err)
	}
	return nil
}
