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
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// ErrInvalid is wrapped by every error that says where and why a text is not a trace.
var ErrInvalid = errors.New("trace: invalid trace")

// reader is one text on its way to a trace.
type reader struct {
	file            string
	csv             *csv.Reader
	columns         map[string]int // the place in a line of time, process, key and tokens
	unit            int64          // of the time, in nanoseconds
	keys, processes names
	requests        []scenario.TraceRequest
}

// ReadFile reads the trace in a regular file.
func ReadFile(path string) (*scenario.Trace, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // a pipe would be empty when the run is repeated
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	defer f.Close()
	return Read(path, f)
}

// Read reads a trace. The name of the file is for the error, which has the line and the column, in
// bytes from 1, and wraps ErrInvalid, but where from itself failed.
func Read(name string, from io.Reader) (*scenario.Trace, error) {
	buffered := bufio.NewReaderSize(from, 1<<16)
	if mark, err := buffered.Peek(3); err == nil && string(mark) == "\ufeff" { // as spreadsheets write
		_, _ = buffered.Discard(len(mark))
	}
	r := &reader{
		file: name, csv: csv.NewReader(buffered), columns: map[string]int{}, keys: names{}, processes: names{},
	}
	r.csv.ReuseRecord = true
	for parse := r.header; ; parse = r.line {
		fields, err := r.csv.Read()
		if err == nil {
			err = parse(fields)
		}
		switch syntax, ok := errors.AsType[*csv.ParseError](err); {
		case err == nil:
			continue
		case ok:
			return nil, r.bad(syntax.Line, syntax.Column, syntax.Err.Error())
		case errors.Is(err, ErrInvalid):
			return nil, err
		case err != io.EOF:
			return nil, fmt.Errorf("trace: %s: %w", name, err)
		case r.unit == 0:
			return nil, r.bad(1, 1, "the file is empty; its first line must name the columns: "+columnNames)
		case len(r.requests) == 0:
			return nil, r.bad(2, 1, "there are no requests")
		}
		r.renumber()
		return &scenario.Trace{Requests: r.requests}, nil
	}
}

func (r *reader) bad(line, column int, message string) error {
	return fmt.Errorf("%w: %s:%d:%d: %s", ErrInvalid, r.file, line, column, message)
}

// badField is an error in a field of the line that was read last.
func (r *reader) badField(field int, format string, args ...any) error {
	line, column := r.csv.FieldPos(field)
	return r.bad(line, column, fmt.Sprintf(format, args...))
}

// timeColumns are nanoseconds per unit of each.
var timeColumns = map[string]int64{"time_s": 1e9, "time_ms": 1e6, "time_us": 1e3, "time_ns": 1}

const columnNames = "time_s (or time_ms, time_us, time_ns), process, key and tokens"

func (r *reader) header(names []string) error {
	for i, name := range names {
		column := name
		if unit := timeColumns[name]; unit > 0 {
			column, r.unit = "time", unit
		} else if name != "process" && name != "key" && name != "tokens" {
			return r.badField(i, "unknown column %q; there are %s", name, columnNames)
		}
		if first, again := r.columns[column]; again {
			return r.badField(i, "column %q says what column %q said already", name, names[first])
		}
		r.columns[column] = i
	}
	if r.unit == 0 {
		return r.badField(0, "there is no column with the time; there are %s", columnNames)
	}
	return nil
}

func (r *reader) line(fields []string) error {
	i := r.columns["time"]
	at, err := nanoseconds(fields[i], r.unit)
	if err != nil {
		return r.badField(i, "time %q %v", fields[i], err)
	}
	if n := len(r.requests); n > 0 && at < r.requests[n-1].At {
		return r.badField(i, "time %q is before that of the line before; sort the lines", fields[i])
	}
	q := scenario.TraceRequest{At: at, Cost: 1}
	if i, ok := r.columns["process"]; ok {
		q.Process = r.processes.number(fields[i])
	}
	if i, ok := r.columns["key"]; ok {
		q.Key = r.keys.number(fields[i])
	}
	if i, ok := r.columns["tokens"]; ok {
		q.Cost, err = strconv.ParseInt(fields[i], 10, 64)
		if err != nil || q.Cost < 1 {
			return r.badField(i, "tokens %q must be a whole number, 1 or more", fields[i])
		}
	}
	r.requests = append(r.requests, q)
	return nil
}

// timestamp is the least first time that cannot be meant to count from the start of a run.
const timestamp = 365 * 24 * time.Hour

// renumber makes processes' numbers those that the text has, if it has numbers only, and timestamps
// times.
func (r *reader) renumber() {
	start := r.requests[0].At
	if start < timestamp {
		start = 0
	}
	numbers := r.processes.numbers()
	for i := range r.requests {
		q := &r.requests[i]
		q.At -= start
		if len(numbers) > 0 {
			q.Process = numbers[q.Process]
		}
	}
}

// names numbers strings from 0 in the order of their first appearance.
type names map[string]int

func (n names) number(s string) int {
	i, ok := n[s]
	if !ok {
		i = len(n)
		n[strings.Clone(s)] = i // s is a part of its line, and would keep all of that
	}
	return i
}

// numbers are the names as numbers, in the order of theirs; nil unless all of them are numbers.
func (n names) numbers() []int {
	numbers := make([]int, len(n))
	for s, i := range n {
		x, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			return nil
		}
		numbers[i] = int(x)
	}
	return numbers
}

// decimal is a number whose exponent does not ask for a great many digits.
var decimal = regexp.MustCompile(`^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?$`)

// nanoseconds reads a decimal number of a unit. A double would not do: 1700000000.123456789 has
// more digits than it holds.
func nanoseconds(s string, unit int64) (time.Duration, error) {
	if !decimal.MatchString(s) {
		return 0, errors.New("is not a decimal number")
	}
	x, _ := new(big.Rat).SetString(s)
	if x.Sign() < 0 {
		return 0, errors.New("is negative")
	}
	x.Mul(x, big.NewRat(unit, 1))
	ns := new(big.Int).Quo(x.Num(), x.Denom())
	if !ns.IsInt64() {
		return 0, errors.New("is too large: a time is at most 292 years")
	}
	return time.Duration(ns.Int64()), nil
}

// Digest identifies what a trace says, whatever the text looked like: the first 16 hexadecimal
// digits of a SHA-256.
func Digest(t *scenario.Trace) string {
	h := sha256.New()
	for _, r := range t.Requests {
		numbers := []int64{int64(r.At), int64(r.Process), int64(r.Key), r.Cost}
		_ = binary.Write(h, binary.LittleEndian, numbers) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
