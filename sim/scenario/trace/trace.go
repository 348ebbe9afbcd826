// Package trace reads recorded sequences of requests from files, for the simulator to replay.
//
// Package trace accepts two formats, which it recognises by their first lines:
//
//   - CSV, whose first line names the columns, in any order;
//   - access logs that match a pattern in formats.go: the common format and the combined format, as Apache,
//     nginx and other servers write them, with or without a virtual host before the line. The fields are
//     vhost, host, ident, user, time, request, method, path, status, bytes, referer and agent. In place of an
//     address, a line may have a list (X-Forwarded-For), whose first address is the host.
//
// A file in either format may be compressed by gzip.
//
// The fields of a request have these names:
//
//	time_s    arrival time of the request; or time_ms, time_us or time_ns: a decimal number, cut off at a
//	          nanosecond. Or time: a timestamp, as in 2026-11-23T09:16:00Z or in
//	          23/Nov/2026:09:16:00 +0000. Required
//	process   process that got the request. Without it, processes take turns
//	key       key of the request. Without it, all requests have one key; in an access log, the host
//	tokens    cost of the request, 1 or more. Without it 1
//
// A caller's Columns map the fields to other names. Times count from the start of the run. If the first time
// is a year or more, however, times are timestamps, and the first request comes at 0. Timestamps in whole
// seconds are spread: the requests of each second come evenly within the second.
//
// Keys are any strings. Package trace numbers keys from 0 in the order of their first requests, because the
// simulator only compares keys. Processes are numbered as keys are. But if all process names are whole
// numbers below twice the number of processes, processes keep the numbers in their names.
//
// Read leaves out a line that is no request, sorts lines that are not in order of time, and records both in
// the Notes of the trace. The error for a file of another known kind names the kind.
package trace

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// ErrInvalid is wrapped by every error about a text that is not a trace.
var ErrInvalid = errors.New("trace: invalid trace")

// ReadFile reads the trace in a regular file.
func ReadFile(path string, columns Columns) (*scenario.Trace, error) {
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
	return Read(path, f, columns)
}

// Read reads a trace. The error shows the file's name, and wraps ErrInvalid unless reading from fails.
func Read(name string, from io.Reader, columns Columns) (*scenario.Trace, error) {
	r := &reader{file: name, columns: &columns, keys: names{}, processes: names{}, nameless: map[string]int{}}
	if err := r.read(bufio.NewReaderSize(from, 1<<16)); errors.Is(err, ErrInvalid) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("trace: %s: %w", name, err)
	}
	if r.odd > 0 {
		r.note(some(r.odd, r.lines, "%d lines", "is no request and was", "are no requests and were") + " left out; " +
			r.why)
	}
	r.settle()
	t := &scenario.Trace{Requests: r.requests, Notes: r.notes}
	for _, q := range t.Requests {
		t.Keys = max(t.Keys, q.Key+1)
		if !r.turns {
			t.Processes = max(t.Processes, q.Process+1)
		}
	}
	return t, nil
}

// reader builds a trace from one text.
type reader struct {
	file            string
	log             bool // whether the text is an access log
	columns         *Columns
	lines, odd      int    // number of lines with text, and number of such lines that are no requests
	why             string // the reason why the first odd line is no request
	keys, processes names
	requests        []scenario.TraceRequest
	notes           []string
	nameless        map[string]int // number of requests whose key or process is "-" or empty, by field
	turns           bool           // whether some line names no process
	finer           bool           // whether some time is not a whole second
}

func (r *reader) bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s: "+format, append([]any{ErrInvalid, r.file}, args...)...)
}

func (r *reader) read(from *bufio.Reader) (err error) {
	if mark, _ := from.Peek(2); string(mark) == "\x1f\x8b" { // gzip's first bytes, as in archived logs
		unpacked, err := gzip.NewReader(from)
		if err == nil {
			err = r.read(bufio.NewReaderSize(unpacked, 1<<16))
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			err = r.bad("the file is compressed by gzip, and damaged: %v", err)
		}
		return err
	}
	if mark, _ := from.Peek(3); string(mark) == "\ufeff" { // byte order mark, which spreadsheets write
		_, _ = from.Discard(len(mark))
	}
	other, isLog := kindOf(from)
	switch r.log = isLog; {
	case other != "":
		return r.bad("it %s", other)
	case isLog:
		err = r.readLog(from)
	default:
		err = r.readCSV(from)
	}
	if err == nil && len(r.requests) == 0 {
		return r.bad("there are no requests in its %d lines; %s", r.lines, r.why)
	}
	return err
}

// take adds the request of line n; of(field) returns a field of the line. A non-nil err tells why line n is
// no request.
func (r *reader) take(n int, of func(field string) *string, err error) {
	r.lines++
	if err == nil {
		err = r.add(of)
	}
	if err != nil {
		if r.odd++; r.odd == 1 {
			r.why = fmt.Sprintf("the first is line %d: %v", n, err)
		}
	}
}

// lineMost is the largest length of a line of a log, in bytes.
const lineMost = 1 << 20

func (r *reader) readLog(from io.Reader) error {
	names := map[string]string{"time": "time", "key": "host"}
	maps.Copy(names, r.columns.named)
	for is, name := range names {
		if !slices.Contains(logFields, name) {
			return r.bad("an access log has no field %q for the %s; there are %s", name, is,
				strings.Join(logFields, ", "))
		}
	}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, lineMost)
	n := 1
	for ; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		fields, ok := logLine(lines.Text())
		var err error
		if !ok {
			err = errors.New(`it is not like HOST - USER [TIME] "METHOD PATH HTTP" STATUS BYTES`)
		}
		for _, name := range names {
			if ok && fields[name] == "" {
				err = fmt.Errorf("it has no %s", name)
			}
		}
		r.take(n, func(is string) *string {
			if text, ok := fields[names[is]]; ok {
				return &text
			}
			return nil
		}, err)
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
	at, width := map[string]int{}, len(names)
	if err := r.header(names, at); err != nil {
		return err
	}
	for {
		fields, err := c.Read()
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
			if n, _ = c.FieldPos(0); len(fields) != width {
				err = csv.ErrFieldCount
			}
		}
		r.take(n, func(is string) *string {
			if i, ok := at[is]; ok {
				return &fields[i]
			}
			return nil
		}, err)
	}
}

// header finds the column of each field.
func (r *reader) header(names []string, at map[string]int) error {
	what := map[string]string{}
	for is, name := range r.columns.named {
		what[name] = is
	}
	for i, name := range names {
		is, mapped := what[name]
		if unit, isTime := timeColumns[name]; isTime && !mapped {
			if is = "time"; r.columns.named["time"] == "" {
				r.columns.unit = unit
			}
		} else if !mapped {
			is = name
		}
		switch own := slices.Contains([]string{"time", "process", "key", "tokens"}, is); {
		case !mapped && (own && r.columns.named[is] != "" || !own && r.columns.named != nil):
			continue // another column is mapped to the field, or the caller's mapping leaves the column out
		case !own:
			return r.bad("unknown column %q; there are %s; for other names see --columns", name, columnNames)
		}
		if first, again := at[is]; again {
			return r.bad("column %q repeats column %q", name, names[first])
		}
		at[is] = i
	}
	for is, name := range r.columns.named {
		if _, ok := at[is]; !ok {
			return r.bad("there is no column %q, which should be the %s; there are %s", name, is,
				strings.Join(names, ", "))
		}
	}
	if _, ok := at["time"]; !ok {
		return r.bad("there is no column with the time; there are %s", columnNames)
	}
	return nil
}

// add adds the request in one line.
func (r *reader) add(of func(field string) *string) error {
	at, err := r.columns.timeOf(*of("time"))
	if err != nil {
		return fmt.Errorf("time %q %w", *of("time"), err)
	}
	q := scenario.TraceRequest{At: at, Cost: 1}
	if text := of("tokens"); text != nil {
		whole, part, _ := strings.Cut(*text, ".") // tokens may be written as 374.0
		q.Cost, err = strconv.ParseInt(whole, 10, 64)
		if err != nil || q.Cost < 1 || strings.Trim(part, "0") != "" {
			return fmt.Errorf("tokens %q must be a whole number, 1 or more", *text)
		}
	}
	process := of("process")
	if process != nil {
		q.Process = r.number("process", r.processes, *process)
	}
	if key := of("key"); key != nil {
		q.Key = r.number("key", r.keys, *key)
	}
	r.turns = r.turns || process == nil
	r.finer = r.finer || at%time.Second != 0
	r.requests = append(r.requests, q)
	return nil
}

// number returns the number of a name. A missing name counts as a name, and in nameless.
func (r *reader) number(what string, of names, name string) int {
	if name == "" || name == "-" {
		r.nameless[what]++
	}
	return of.number(name)
}

// timestamp is the smallest first time that means a timestamp instead of a time since the start of a run.
const timestamp = 365 * 24 * time.Hour

// settle sorts requests, converts timestamps to times, and numbers processes. If the process names are
// numbers (see numbers), processes keep these.
func (r *reader) settle() {
	byTime := func(a, b scenario.TraceRequest) int { return cmp.Compare(a.At, b.At) }
	if !slices.IsSortedFunc(r.requests, byTime) {
		slices.SortStableFunc(r.requests, byTime)
		r.note("the lines are not in order of time: they were sorted")
	}
	n := len(r.requests)
	start, lasts := r.requests[0].At, r.requests[n-1].At-r.requests[0].At
	if (r.log || start >= timestamp) && !r.finer {
		r.spread()
	}
	if start < timestamp {
		if n > 1 && start >= time.Second && start > 10*lasts {
			r.note(fmt.Sprintf("its first request comes %v after the start of the run, and the last one %v later: "+
				"is the unit of its times right?", start, lasts))
		}
		start = 0
	}
	for _, what := range []string{"process", "key", "tokens"} {
		if none := r.nameless[what]; none > 0 {
			shared := some(none, n, "its %d requests", "has", "have") + fmt.Sprintf(" no %s (- or nothing): ", what)
			r.note(shared + either(none == 1, "it has one of its own", "they share one"))
		}
	}
	for name := range r.keys {
		if len(r.keys) == 1 && n > 1 {
			r.note(fmt.Sprintf("all its requests have the key %q", name))
		}
	}
	numbers := r.processes.numbers()
	// Keys and processes are numbered again, because sorting may have changed which comes first.
	keys, processes := map[int]int{}, map[int]int{}
	for i := range r.requests {
		q := &r.requests[i]
		q.At -= start
		q.Key = numberOf(q.Key, keys)
		switch {
		case r.turns:
			q.Process = i
		case len(numbers) > 0:
			q.Process = numbers[q.Process]
		default:
			q.Process = numberOf(q.Process, processes)
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

func (r *reader) note(text string) { r.notes = append(r.notes, text) }

// names numbers strings from 0 in the order of their first appearance.
type names map[string]int

func (n names) number(s string) int {
	if i, ok := n[s]; ok {
		return i
	}
	return numberOf(strings.Clone(s), n) // without Clone, s keeps its line in memory
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

// numbers returns the integers that the names spell, name s at index n[s]; or nil if a name is no integer, or
// an integer of at least twice the number of names, like a port, which is not the number of a process.
func (n names) numbers() []int {
	numbers := make([]int, len(n))
	for s, i := range n {
		x, err := strconv.ParseUint(s, 10, 31)
		if err != nil || x >= 2*uint64(len(n)) {
			return nil
		}
		numbers[i] = int(x)
	}
	return numbers
}

// Digest identifies the requests of a trace in any format, by the first 16 hexadecimal digits of a SHA-256.
func Digest(t *scenario.Trace) string {
	h := sha256.New()
	for _, r := range t.Requests {
		numbers := []int64{int64(r.At), int64(r.Process), int64(r.Key), r.Cost}
		_ = binary.Write(h, binary.LittleEndian, numbers) // writing to a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// some formats how many of all things do something, as in "1,200 of its 2,000 requests come". all is a format
// for the total, does is the singular verb, and do the plural verb.
func some(n, of int, all, does, do string) string {
	return message.NewPrinter(language.English).Sprintf("%d of "+all+" %s", n, of, either(n == 1, does, do))
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
