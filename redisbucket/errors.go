package redisbucket

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// errDamaged is the scripts' answer where what is stored cannot be trusted.
var errDamaged = errors.New("stored state is damaged")

// outcome is what an error says about the call: whether it may have been executed and whether a retry may help.
type outcome int

const (
	unknown   outcome = iota // the call may have been executed
	refused                  // it certainly was not; a retry may help
	forbidden                // it was not, and no retry helps before somebody acts
	hopeless                 // no retry helps, but part of it may have been executed
)

// codes are the error codes of a server. Each of these is given before a script's first write, whose commands a
// server refuses or accepts as a whole.
var codes = map[string]outcome{
	"READONLY": refused, "LOADING": refused, "MASTERDOWN": refused, "CLUSTERDOWN": refused, "OOM": refused,
	"NOREPLICAS": refused, "MISCONF": refused, "BUSY": refused, "TRYAGAIN": refused, "MOVED": refused, "ASK": refused,
	"NOSCRIPT": refused,
	"NOPERM":   forbidden, "NOAUTH": forbidden, "WRONGPASS": forbidden, "WRONGTYPE": forbidden, "CROSSSLOT": forbidden,
}

// classify sorts err, which is not nil.
func classify(err error) outcome {
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.Is(err, errDamaged):
		return forbidden
	case errors.As(err, &certificate), errors.As(err, &host), errors.As(err, &authority):
		return forbidden
	case errors.As(err, &op) && op.Op == "remote error": // a TLS alert: the server wants a certificate, or another version
		return hopeless
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		errors.Is(err, redis.ErrClosed), errors.Is(err, errNotSent):
		return refused
	}
	var answered redis.Error
	if !errors.As(err, &answered) || errors.Is(err, redis.Nil) {
		return unknown
	}
	text := answered.Error()
	code, _, _ := strings.Cut(text, " ")
	if o, ok := codes[code]; ok {
		return o
	}
	// What a command inside a script answered reaches us as "ERR ..." or, where Redis 6 gives it to
	// redis.pcall, as "@user_script: 12: ...".
	if code != "ERR" && code != "@user_script:" {
		return unknown
	}
	for _, words := range notPermitted {
		if strings.Contains(text, words) {
			return hopeless
		}
	}
	// Redis before 7 wraps the answer's own code: "ERR Error running script ... -OOM ...".
	for word := range strings.FieldsSeq(text) {
		if o, ok := codes[strings.TrimPrefix(word, "-")]; ok && (word[0] == '-' || o == forbidden) {
			return o
		}
	}
	switch {
	case strings.HasPrefix(text, "ERR max number of clients"):
		return refused
	case strings.HasPrefix(text, "ERR unknown command"):
		return forbidden
	}
	return unknown
}

// notPermitted is how servers say that the user's permissions end inside the script, which may have
// written by then: Redis 6 and 7.0, and Redis 7.2 and Valkey.
var notPermitted = []string{"The user executing the script", "ACL failure in script"}

// errNotSent is wrapped by errors of calls that ended before anything was sent.
var errNotSent = errors.New("not sent")

// wrap gives err, met on a call for the user's key, the names that lease knows it by.
func wrap(key string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, lease.ErrStale) || errors.Is(err, lease.ErrInvalidRequest) || errors.Is(err, lease.ErrInvalidConfig) {
		return fmt.Errorf("redisbucket: key %s: %w", quote(key), err)
	}
	return fmt.Errorf("redisbucket: key %s: %w", quote(key), named(err))
}

// named gives err, which a server, a client or the network met, the names that lease knows it by.
func named(err error) error {
	switch classify(err) {
	case refused:
		return fmt.Errorf("%w: %w: %w", lease.ErrUnavailable, lease.ErrRefused, err)
	case forbidden:
		return fmt.Errorf("%w: %w: %w: %w", lease.ErrUnavailable, lease.ErrRefused, lease.ErrPermanent, err)
	case hopeless:
		return fmt.Errorf("%w: %w: %w", lease.ErrUnavailable, lease.ErrPermanent, err)
	}
	return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
}

// quote shows a key in an error: any bytes, and never more than a line.
func quote(key string) string {
	const most = 64
	if len(key) > most {
		return fmt.Sprintf("%q... (%d bytes)", key[:most], len(key))
	}
	return fmt.Sprintf("%q", key)
}

// ended says that ctx ended before the answer came; sent tells whether the call may be on its way.
func ended(ctx context.Context, sent bool) error {
	if sent {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", errNotSent, context.Cause(ctx))
}
