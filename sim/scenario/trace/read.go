package trace

import (
	"bufio"
	"encoding/csv"
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

// timeColumns are nanoseconds per unit of each.
var timeColumns = map[string]int64{"time_s": 1e9, "time_ms": 1e6, "time_us": 1e3, "time_ns": 1}

const columnNames = "time_s (or time_ms, time_us, time_ns), process, key and tokens"

// timestamp is the least first time that cannot be meant to count from the start of a run.
const timestamp = 365 * 24 * time.Hour

// reader is one text on its way to a trace.
type reader struct {
	file                       string
	csv                        *csv.Reader
	time, process, key, tokens int   // the columns' places in a line; -1 for one that is not there
	unit                       int64 // of the time, in nanoseconds
	keys, processes            names
	requests                   []scenario.TraceRequest
}

// ReadFile reads the trace in a regular file.
func ReadFile(path string) (*scenario.Trace, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if !info.Mode().IsRegular() { // a pipe would be waited for, and be empty when the run is repeated
		return nil, fmt.Errorf("trace: %s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	defer f.Close()
	return Read(path, f)
}

// Read reads a trace. The name of the file is for the error, which is an *Error but where from
// itself failed.
func Read(name string, from io.Reader) (*scenario.Trace, error) {
	buffered := bufio.NewReaderSize(from, 1<<16)
	if mark, err := buffered.Peek(3); err == nil && string(mark) == "\ufeff" { // as spreadsheets write
		_, _ = buffered.Discard(len(mark))
	}
	r := &reader{file: name, csv: csv.NewReader(buffered)}
	r.csv.ReuseRecord = true
	header, err := r.csv.Read()
	if err == io.EOF {
		return nil, &Error{name, 1, 1, "the file is empty; its first line must name the columns: " + columnNames}
	}
	if err == nil {
		err = r.header(header)
	}
	for err == nil {
		var line []string
		if line, err = r.csv.Read(); err == nil {
			err = r.line(line)
		}
	}
	if e, ok := errors.AsType[*csv.ParseError](err); ok {
		return nil, &Error{name, e.Line, e.Column, e.Err.Error()}
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return nil, err
	}
	if err != io.EOF {
		return nil, fmt.Errorf("trace: %s: %w", name, err)
	}
	if len(r.requests) == 0 {
		return nil, &Error{name, 2, 1, "there are no requests"}
	}
	r.renumber()
	return &scenario.Trace{Requests: r.requests}, nil
}

// bad is an error in the field of the line that was read last.
func (r *reader) bad(field int, format string, args ...any) error {
	line, column := r.csv.FieldPos(field)
	return &Error{r.file, line, column, fmt.Sprintf(format, args...)}
}

func (r *reader) header(names []string) error {
	r.time, r.process, r.key, r.tokens = -1, -1, -1, -1
	for i, name := range names {
		place := map[string]*int{"process": &r.process, "key": &r.key, "tokens": &r.tokens}[name]
		if unit := timeColumns[name]; unit > 0 {
			place, r.unit = &r.time, unit
		}
		if place == nil {
			return r.bad(i, "unknown column %q; there are %s", name, columnNames)
		}
		if *place >= 0 {
			return r.bad(i, "column %q says what column %q said already", name, names[*place])
		}
		*place = i
	}
	if r.time < 0 {
		return r.bad(0, "there is no column with the time; there are %s", columnNames)
	}
	return nil
}

func (r *reader) line(fields []string) error {
	at, err := nanoseconds(fields[r.time], r.unit)
	if err != nil {
		return r.bad(r.time, "time %q %v", fields[r.time], err)
	}
	q := scenario.TraceRequest{At: at, Cost: 1}
	if n := len(r.requests); n > 0 && q.At < r.requests[n-1].At {
		return r.bad(r.time, "time %q is before that of the line before; sort the lines", fields[r.time])
	}
	if r.process >= 0 {
		q.Process = r.processes.number(fields[r.process])
	}
	if r.key >= 0 {
		q.Key = r.keys.number(fields[r.key])
	}
	if r.tokens >= 0 {
		q.Cost, err = strconv.ParseInt(fields[r.tokens], 10, 64)
		if err != nil || q.Cost < 1 {
			return r.bad(r.tokens, "tokens %q must be a whole number, 1 or more", fields[r.tokens])
		}
	}
	r.requests = append(r.requests, q)
	return nil
}

// renumber makes processes' numbers those that the text has, if it has numbers only, and timestamps
// times.
func (r *reader) renumber() {
	numbers, ok := r.processes.numbers()
	start := time.Duration(0)
	if r.requests[0].At >= timestamp {
		start = r.requests[0].At
	}
	for i := range r.requests {
		q := &r.requests[i]
		q.At -= start
		if ok && r.process >= 0 {
			q.Process = numbers[q.Process]
		}
	}
}

// names numbers strings from 0 in the order of their first appearance.
type names struct {
	known map[string]int
	list  []string
}

func (n *names) number(s string) int {
	i, ok := n.known[s]
	if !ok {
		if n.known == nil {
			n.known = map[string]int{}
		}
		i = len(n.list)
		s = strings.Clone(s) // it is a part of its line, and would keep all of that
		n.known[s] = i
		n.list = append(n.list, s)
	}
	return i
}

// numbers are the names as numbers, if all of them are.
func (n *names) numbers() (numbers []int, ok bool) {
	for _, s := range n.list {
		i, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			return nil, false
		}
		numbers = append(numbers, int(i))
	}
	return numbers, true
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
