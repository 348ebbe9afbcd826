package trace

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// digits of a time column's unit below which there is the nanosecond.
var timeColumns = map[string]int{"time_s": 9, "time_ms": 6, "time_us": 3, "time_ns": 0}

const columnNames = "time_s (or time_ms, time_us, time_ns), process, key and tokens"

// columns are the places of the columns in a line; -1 for one that is not there.
type columns struct {
	time, process, key, tokens int
	digits                     int // of the time
}

// reader is one text on its way to a trace.
type reader struct {
	file string
	csv  *csv.Reader
	columns
	keys, processes names
	requests        []scenario.TraceRequest
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

// Read reads a trace. The name of the file is for the error, which is an *Error but where from itself failed.
func Read(name string, from io.Reader) (*scenario.Trace, error) {
	buffered := bufio.NewReaderSize(from, 1<<16)
	if mark, err := buffered.Peek(3); err == nil && string(mark) == "\ufeff" {
		if _, err := buffered.Discard(3); err != nil { // spreadsheets write a byte order mark
			return nil, err
		}
	}
	r := &reader{file: name, csv: csv.NewReader(buffered)}
	r.csv.ReuseRecord = true
	header, err := r.csv.Read()
	if err == io.EOF {
		return nil, &Error{name, 1, 1, "the file is empty; its first line must name the columns: " + columnNames}
	}
	if err != nil {
		return nil, r.failed(err)
	}
	if err := r.header(header); err != nil {
		return nil, err
	}
	for {
		line, err := r.csv.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, r.failed(err)
		}
		if err := r.line(line); err != nil {
			return nil, err
		}
	}
	if len(r.requests) == 0 {
		return nil, &Error{name, 2, 1, "there are no requests"}
	}
	r.renumber()
	return &scenario.Trace{Requests: r.requests}, nil
}

// failed is an error of encoding/csv as one of this package.
func (r *reader) failed(err error) error {
	if e, ok := errors.AsType[*csv.ParseError](err); ok {
		return &Error{r.file, e.Line, e.Column, e.Err.Error()}
	}
	return fmt.Errorf("trace: %s: %w", r.file, err)
}

// bad is an error in the field of the line that was read last.
func (r *reader) bad(field int, format string, args ...any) error {
	line, column := r.csv.FieldPos(field)
	return &Error{r.file, line, column, fmt.Sprintf(format, args...)}
}

func (r *reader) header(names []string) error {
	r.columns = columns{-1, -1, -1, -1, 0}
	for i, name := range names {
		place := map[string]*int{"process": &r.process, "key": &r.key, "tokens": &r.tokens}[name]
		if digits, ok := timeColumns[name]; ok {
			place, r.digits = &r.time, digits
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
	ns, err := nanoseconds(fields[r.time], r.digits)
	if err != nil {
		return r.bad(r.time, "time %q %v", fields[r.time], err)
	}
	q := scenario.TraceRequest{At: ns, Cost: 1}
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

// renumber makes processes' numbers those that the text has, if it has numbers only, and timestamps times.
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
		s = strings.Clone(s) // which is a part of its line, and would keep all of that
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

var errNumber = errors.New("is not a decimal number")

// nanoseconds reads a decimal number of a unit of 10^digits ns. A double would not do: 1700000000.123456789 has more
// digits than it holds.
func nanoseconds(s string, digits int) (time.Duration, error) {
	number, power, found := strings.Cut(strings.ToLower(strings.TrimPrefix(s, "+")), "e")
	if found {
		n, err := strconv.ParseInt(power, 10, 16)
		if err != nil {
			return 0, errNumber
		}
		digits += int(n)
	}
	negative := strings.HasPrefix(number, "-")
	whole, part, _ := strings.Cut(strings.TrimPrefix(number, "-"), ".")
	all := whole + part
	if all == "" || strings.Trim(all, "0123456789") != "" {
		return 0, errNumber
	}
	point := len(whole) + digits
	switch {
	case point <= 0:
		all = "0"
	case point <= len(all):
		all = all[:point]
	default:
		if strings.Trim(all, "0") != "" {
			all += strings.Repeat("0", point-len(all))
		}
	}
	if negative && strings.Trim(whole+part, "0") != "" {
		return 0, errors.New("is negative")
	}
	ns, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return 0, errors.New("is too large: a time is at most 292 years")
	}
	return time.Duration(ns), nil
}
