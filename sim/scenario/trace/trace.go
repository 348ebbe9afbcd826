// Package trace reads recorded sequences of requests from CSV files, for the simulator to replay.
//
// The first line names the columns, in any order:
//
//	time_s    when the request came; or time_ms, time_us or time_ns. A decimal number; what is finer
//	          than a nanosecond is cut off. Lines are in order of time. Required
//	process   which process it came to. Optional; without it all come to the first
//	key       which key it was for. Optional; without it all are for the first
//	tokens    how many it took, 1 or more. Optional; without it 1
//
// Times count from the start of the run. But where the first is a year or more, they are
// timestamps, and the first request comes at 0.
//
// Keys are any strings. They are numbered from 0 in the order of their first appearance: the
// simulator has to know which are the same and not what they are called. Processes are numbered in
// the same way, unless all of them are whole numbers below 2^31; then those are the numbers.
package trace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// ErrInvalid is wrapped by every error that says why a text is not a trace.
var ErrInvalid = errors.New("trace: invalid trace")

// Error is where a text stops being a trace, and why.
type Error struct {
	File         string
	Line, Column int // from 1; the column counts bytes
	Message      string
}

// Error is "file:line:column: message".
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Unwrap is ErrInvalid.
func (e *Error) Unwrap() error { return ErrInvalid }

// Digest identifies what a trace says, whatever the text looked like: the first 16 hexadecimal
// digits of a SHA-256.
func Digest(t *scenario.Trace) string {
	h := sha256.New()
	line := make([]byte, 0, 32)
	for _, r := range t.Requests {
		line = line[:0]
		for _, n := range [...]int64{int64(r.At), int64(r.Process), int64(r.Key), r.Cost} {
			line = binary.LittleEndian.AppendUint64(line, uint64(n))
		}
		h.Write(line)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
