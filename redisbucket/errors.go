package redisbucket

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

var (
	errDamaged = errors.New("stored state is damaged")
	errNewer   = errors.New("stored state is from a newer release")
	errFigure  = errors.New("impossible value") // a bad number in a reply
	errNotSent = errors.New("not sent")         // no byte of the call was sent
)

func notSent(err error) error { return fmt.Errorf("%w: %w", errNotSent, err) }

// The class of a call's error says whether the call may have been executed, and whether retries are useless.
var (
	errUnknown   = lease.ErrUnavailable                                         // perhaps executed
	errRefused   = fmt.Errorf("%w: %w", lease.ErrUnavailable, lease.ErrRefused) // not executed
	errForbidden = fmt.Errorf("%w: %w", errRefused, lease.ErrPermanent)         // not executed; permanent
	errHopeless  = fmt.Errorf("%w: %w", errUnknown, lease.ErrPermanent)         // perhaps executed; permanent
)

// codes classifies errors by which a server refuses a script, or its first write, so that nothing is written.
var codes = map[string]error{
	"READONLY": errRefused, "LOADING": errRefused, "MASTERDOWN": errRefused, "CLUSTERDOWN": errRefused,
	"OOM": errRefused, "NOREPLICAS": errRefused, "MISCONF": errRefused, "BUSY": errRefused,
	"TRYAGAIN": errRefused, "MOVED": errRefused, "ASK": errRefused, "NOSCRIPT": errRefused,
	"NOPERM": errForbidden, "NOAUTH": errForbidden, "WRONGPASS": errForbidden, "WRONGTYPE": errForbidden,
	"CROSSSLOT": errForbidden,
}

// wordings classifies errors of the code ERR by their texts. The first two texts, of Redis up to 7.0 and of
// later versions, report a missing permission inside a script that may have written before.
var wordings = []struct {
	words string
	says  error
}{
	{"The user executing the script", errHopeless},
	{"ACL failure in script", errHopeless},
	{"ERR max number of clients", errRefused},
	{"ERR unknown command", errForbidden},
}

func classify(err error) error {
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	var answer redis.Error
	switch {
	case errors.Is(err, errDamaged), errors.Is(err, errNewer):
		return errForbidden
	case errors.As(err, &certificate), errors.As(err, &host), errors.As(err, &authority):
		return errForbidden
	case errors.As(err, &op) && op.Op == "remote error":
		return errHopeless // a TLS alert: the server wants a certificate, or another version of TLS
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, errNotSent), errors.Is(err, redis.ErrClosed),
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return errRefused
	case errors.As(err, &answer) && !errors.Is(err, redis.Nil):
		return classifyAnswer(answer.Error())
	}
	return errUnknown
}

func classifyAnswer(text string) error {
	code, _, _ := strings.Cut(text, " ")
	if o, ok := codes[code]; ok {
		return o
	}
	// The error of a command inside a script begins with ERR or, since Redis 6, with @user_script.
	if code != "ERR" && code != "@user_script:" {
		return errUnknown
	}
	for _, w := range wordings {
		if strings.Contains(text, w.words) {
			return w.says
		}
	}
	// Redis before 7 puts a command's error code inside the text: "ERR Error running script ... -OOM ...".
	for word := range strings.FieldsSeq(text) {
		if o, ok := codes[strings.TrimPrefix(word, "-")]; ok && (word[0] == '-' || o == errForbidden) {
			return o
		}
	}
	return errUnknown
}

// wrap adds the key and the matching errors of package lease to err, the error of a call.
func wrap(key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lease.ErrStale), errors.Is(err, lease.ErrInvalidRequest),
		errors.Is(err, lease.ErrInvalidConfig):
	default:
		err = named(err)
	}
	return fmt.Errorf("redisbucket: key %.64q: %w", key, err)
}

// named adds the matching errors of package lease to err, which a server, the client or the network returned.
func named(err error) error {
	if concernsKey(err) {
		return fmt.Errorf("%w: %w: %w", classify(err), lease.ErrKey, err)
	}
	return fmt.Errorf("%w: %w", classify(err), err)
}

// nodeCodes and nodeWords match errors that a server sends to calls for any key, by code and by text. denials
// matches missing permissions.
var (
	nodeCodes = regexp.MustCompile(
		`(^|[ -])(READONLY|LOADING|MASTERDOWN|OOM|NOREPLICAS|MISCONF|BUSY|NOAUTH|WRONGPASS) `)
	nodeWords = regexp.MustCompile(`The cluster is down|max number of clients|unknown command`)
	denials   = regexp.MustCompile(`^NOPERM |The user executing the script|ACL failure in script`)
)

// concernsKey reports whether err concerns one key, so that the server may serve other keys. A missing
// permission for a command concerns all keys.
func concernsKey(err error) bool {
	var answer redis.Error
	switch {
	case errors.Is(err, errDamaged), errors.Is(err, errNewer), errors.Is(err, errFigure):
		return true
	case !errors.As(err, &answer) || errors.Is(err, redis.Nil):
		return false
	}
	text := answer.Error()
	if denials.MatchString(text) {
		return strings.Contains(text, " key")
	}
	return !nodeCodes.MatchString(text) && !nodeWords.MatchString(text)
}
