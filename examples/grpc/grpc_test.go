package main

import (
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// TestServersShareALimitInRedis: a user has as many calls as the burst has, of two servers together.
func TestServersShareALimitInRedis(t *testing.T) {
	testnet.OnRedis(t, func(open func() lease.Store) error {
		admitted := 0
		for range 2 {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			testkit.NoErr(t, err)
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan error)
			go func() {
				served <- serve(ctx, listener, open(), hybrid.PerHour(10), hybrid.PerHour(10))
			}()
			conn, err := grpc.NewClient(listener.Addr().String(),
				grpc.WithTransportCredentials(insecure.NewCredentials()))
			testkit.NoErr(t, err)
			for range 8 {
				_, err := pb.NewHealthClient(conn).Check(
					metadata.AppendToOutgoingContext(t.Context(), "x-user", "ann"), &pb.HealthCheckRequest{})
				if err == nil {
					admitted++
				} else if status.Code(err) != codes.ResourceExhausted {
					t.Errorf("%v", err)
				}
			}
			conn.Close()
			stop()
			testkit.NoErr(t, <-served)
		}
		if admitted != 10 {
			return fmt.Errorf("%d calls are admitted, want 10", admitted)
		}
		return nil
	})
}
