// Package trace reads recorded sequences of requests from files, for the simulator to replay.
//
// Package trace reads two formats, which it recognises by their first lines:
//
//   - CSV, whose first line names the columns, in any order;
//   - access logs in the common format or the combined format, as Apache, nginx and other servers write them,
//     with or without a virtual host before the line. The key of a request is the client's address: the first
//     address if a line has a list of them (X-Forwarded-For).
//
// The columns of a CSV file are:
//
//	time_s    arrival time of the request; or time_ms, time_us or time_ns: a decimal number, cut off at a
//	          nanosecond. Or time: a timestamp, as in 2026-11-23T09:16:00Z or in
//	          23/Nov/2026:09:16:00 +0000. Required
//	process   process that got the request. Without it, processes take turns
//	key       key of the request. Without it, all requests have one key
//	tokens    cost of the request, 1 or more. Without it 1
//
// Times count from the start of the run. If the first time is a year or more, however, times are timestamps,
// and the first request comes at 0. Timestamps in whole seconds are spread: the requests of each second come
// evenly within the second.
//
// Keys and processes are any strings. Package trace numbers them from 0 in the order of their first requests,
// because the simulator only compares them.
//
// Read leaves out a line that is no request, sorts lines that are not in order of time, and records both in
// the Notes of the trace. The error for a file of another known kind names the kind.
package trace

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// ErrInvalid is wrapped by every error about a text that is not a trace.
var ErrInvalid = errors.New("trace: invalid trace")

// ReadFile reads the trace in a regular file.
func ReadFile(path string) (*scenario.Trace, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // a pipe would be empty in a repetition of the run
		err = fmt.Errorf("%s is not a regular file", path)
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	defer f.Close()
	return Read(path, f)
}

// Read reads a trace. The error shows the file's name, and wraps ErrInvalid unless reading from fails.
func Read(name string, from io.Reader) (*scenario.Trace, error) {
	r := &reader{file: name, names: map[string]map[string]int{"key": {}, "process": {}}, nameless: map[string]int{}}
	if err := r.read(bufio.NewReaderSize(from, 1<<16)); errors.Is(err, ErrInvalid) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("trace: %s: %w", name, err)
	}
	if r.odd > 0 {
		r.note("%d of %d lines left out%s", r.odd, r.lines, r.why)
	}
	r.settle()
	t := &scenario.Trace{Requests: r.requests, Notes: r.notes, Sum: digest(r.requests)}
	for _, q := range t.Requests {
		t.Keys = max(t.Keys, q.Key+1)
		if !r.turns {
			t.Processes = max(t.Processes, q.Process+1)
		}
	}
	return t, nil
}

type reader struct {
	file       string
	unit       int64                     // nanoseconds in a unit of time; 0 if times are timestamps
	lines, odd int                       // number of lines with text, and number of such lines that are no requests
	why        string                    // the first odd line and its fault, as the end of a sentence
	names      map[string]map[string]int // numbers of keys and processes, by field
	requests   []scenario.TraceRequest
	notes      []string
	nameless   map[string]int // number of requests whose key or process is "-" or empty, by field
	turns      bool           // whether the text names no processes
	finer      bool           // whether some time is not a whole second
}

func (r *reader) bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s: "+format, append([]any{ErrInvalid, r.file}, args...)...)
}

func (r *reader) read(from *bufio.Reader) (err error) {
	if mark, _ := from.Peek(3); string(mark) == "\ufeff" { // byte order mark, which spreadsheets write
		_, _ = from.Discard(len(mark))
	}
	other, isLog := kindOf(from)
	switch {
	case other != "":
		return r.bad("it %s", other)
	case isLog:
		err = r.readLog(from)
	default:
		err = r.readCSV(from)
	}
	if err == nil && len(r.requests) == 0 {
		return r.bad("there are no requests in its %d lines%s", r.lines, r.why)
	}
	return err
}

// fields returns a field of a line, and reports whether lines have the field.
type fields func(name string) (text string, ok bool)

// take adds the request of line n. A non-nil err tells why line n is no request.
func (r *reader) take(n int, of fields, err error) {
	r.lines++
	if err == nil {
		err = r.add(of)
	}
	if err != nil {
		if r.odd++; r.odd == 1 {
			r.why = fmt.Sprintf("; the first is line %d: %v", n, err)
		}
	}
}

// lineMost is the largest length of a line of a log, in bytes.
const lineMost = 1 << 20

func (r *reader) readLog(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, lineMost)
	n := 1
	for ; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var err error
		line := logLine(lines.Text())
		if line == nil {
			err = errors.New(`it is not like HOST - USER [TIME] "METHOD PATH HTTP" STATUS BYTES`)
		}
		r.take(n, func(name string) (string, bool) { text, ok := line[name]; return text, ok }, err)
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return r.bad("line %d has more than %d bytes", n, lineMost)
	}
	return lines.Err()
}

func (r *reader) readCSV(from io.Reader) error {
	c := csv.NewReader(from)
	c.ReuseRecord, c.FieldsPerRecord = true, -1
	names, err := c.Read()
	switch {
	case errors.Is(err, io.EOF):
		return r.bad("the file is empty; its first line must name the columns: %s", columnNames)
	case errors.As(err, new(*csv.ParseError)):
		return r.bad("%v: it is no line with the names of columns, or of an access log in the common or the combined "+
			"format", err)
	case err != nil:
		return err
	}
	width := len(names)
	at, err := r.header(names)
	if err != nil {
		return err
	}
	for {
		line, err := c.Read()
		var syntax *csv.ParseError
		n := 0
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &syntax):
			n, err = syntax.StartLine, syntax.Err
		case err != nil:
			return err
		default:
			if n, _ = c.FieldPos(0); len(line) != width {
				err = csv.ErrFieldCount
			}
		}
		r.take(n, func(name string) (string, bool) {
			if i, ok := at[name]; ok {
				return line[i], true
			}
			return "", false
		}, err)
	}
}

// header returns the column of each field.
func (r *reader) header(names []string) (at map[string]int, err error) {
	at = map[string]int{}
	var others []string
	for i, name := range names {
		field := name
		unit, isTime := timeColumns[name]
		if isTime {
			field, r.unit = "time", unit
		} else if name != "process" && name != "key" && name != "tokens" {
			others = append(others, name)
			continue
		}
		if first, again := at[field]; again {
			return nil, r.bad("column %q repeats column %q", name, names[first])
		}
		at[field] = i
	}
	if _, ok := at["time"]; !ok {
		return nil, r.bad("there is no column with the time among %s; columns are %s", strings.Join(names, ", "),
			columnNames)
	}
	if len(others) > 0 {
		r.note("columns left out: %s", strings.Join(others, ", "))
	}
	return at, nil
}

func (r *reader) add(of fields) (err error) {
	q := scenario.TraceRequest{Cost: 1}
	text, _ := of("time")
	if r.unit > 0 {
		q.At, err = nanoseconds(text, r.unit)
	} else {
		q.At, err = timestampOf(text)
	}
	if err != nil {
		return fmt.Errorf("time %q %w", text, err)
	}
	if text, ok := of("tokens"); ok {
		whole, part, _ := strings.Cut(text, ".") // tokens may be written as 374.0
		q.Cost, err = strconv.ParseInt(whole, 10, 64)
		if err != nil || q.Cost < 1 || strings.Trim(part, "0") != "" {
			return fmt.Errorf("tokens %q must be a whole number, 1 or more", text)
		}
	}
	q.Process, r.turns = r.number("process", of)
	q.Key, _ = r.number("key", of)
	r.finer = r.finer || q.At%time.Second != 0
	r.requests = append(r.requests, q)
	return nil
}

// number returns the number of the name in a field. An empty name counts as a name, and in nameless.
func (r *reader) number(field string, of fields) (n int, missing bool) {
	name, ok := of(field)
	if !ok {
		return 0, true
	}
	if name == "" || name == "-" {
		r.nameless[field]++
	}
	return numberOf(strings.Clone(name), r.names[field]), false // without Clone, name keeps its line in memory
}

// timestamp is the smallest first time that means a timestamp instead of a time since the start of a run.
const timestamp = 365 * 24 * time.Hour

// settle sorts requests, and converts timestamps to times.
func (r *reader) settle() {
	byTime := func(a, b scenario.TraceRequest) int { return cmp.Compare(a.At, b.At) }
	if !slices.IsSortedFunc(r.requests, byTime) {
		slices.SortStableFunc(r.requests, byTime)
		r.note("the lines are not in order of time: they were sorted")
	}
	n, start := len(r.requests), r.requests[0].At
	if start < timestamp {
		start = 0
	} else if !r.finer {
		r.spread()
	}
	for _, field := range []string{"process", "key"} {
		if none := r.nameless[field]; none > 0 {
			r.note("%d of %d requests have no %s (- or nothing) and share one", none, n, field)
		}
	}
	for name := range r.names["key"] {
		if len(r.names["key"]) == 1 && n > 1 {
			r.note("all its requests have the key %q", name)
		}
	}
	// Keys and processes are numbered again, because sorting may have changed which comes first.
	keys, processes := map[int]int{}, map[int]int{}
	for i := range r.requests {
		q := &r.requests[i]
		q.At -= start
		q.Key = numberOf(q.Key, keys)
		if q.Process = numberOf(q.Process, processes); r.turns {
			q.Process = i
		}
	}
}

// spread spreads the requests of each second over the second: whole seconds would bunch requests.
func (r *reader) spread() {
	crowded := false
	for from, to := 0, 0; from < len(r.requests); from = to {
		at := r.requests[from].At
		for to = from; to < len(r.requests) && r.requests[to].At == at; to++ {
		}
		for i := from; i < to; i++ {
			r.requests[i].At += time.Duration(int64(time.Second) * int64(i-from) / int64(to-from))
		}
		crowded = crowded || to-from > 1
	}
	if crowded {
		r.note("its times are whole seconds: the requests of each come evenly within it")
	}
}

func (r *reader) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// numberOf returns the number of x in seen, and numbers a new x in the order of first appearance, from 0.
func numberOf[K comparable](x K, seen map[K]int) int {
	i, ok := seen[x]
	if !ok {
		i = len(seen)
		seen[x] = i
	}
	return i
}

// digest returns the first 16 hexadecimal digits of a SHA-256 of the requests.
func digest(requests []scenario.TraceRequest) string {
	h := sha256.New()
	for _, r := range requests {
		numbers := []int64{int64(r.At), int64(r.Process), int64(r.Key), r.Cost}
		_ = binary.Write(h, binary.LittleEndian, numbers) // writing to a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
