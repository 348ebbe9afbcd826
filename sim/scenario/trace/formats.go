package trace

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// format reads the requests of a file, one by one.
type format interface {
	next() (request, error)   // io.EOF after the last
	sorted() bool             // they must be in order of time
	refuse(wrong error) error // what was read last is wrong; nil leaves it out
	empty() error             // there was no request
	notes() []string
}

// formatOf tells the format of a file by its first lines, of which some may be of no kind.
func formatOf(name string, from *bufio.Reader, columns *Columns) (format, error) {
	start, _ := from.Peek(1 << 14)
	if bytes.HasPrefix(start, []byte("\x1f\x8b")) {
		return nil, badAt(name, 1, 1, "the file is compressed by gzip; unpack it first")
	}
	for _, line := range bytes.SplitN(start, []byte("\n"), 20) {
		switch line = bytes.TrimSpace(line); {
		case bytes.HasPrefix(line, []byte("{")):
			return newJSONLines(name, from, columns)
		case accessLine.Match(line):
			return newAccessLog(name, from, columns)
		}
	}
	t := &table{file: name, csv: csv.NewReader(from), columns: columns, at: map[string]int{}}
	t.csv.ReuseRecord = true
	return t, t.header()
}

func badAt(file string, line, column int, text string) error {
	return fmt.Errorf("%w: %s:%d:%d: %s", ErrInvalid, file, line, column, text)
}

// table is a CSV file.
type table struct {
	file    string
	csv     *csv.Reader
	columns *Columns
	at      map[string]int // the place in a line of time, process, key and tokens
}

func (t *table) sorted() bool    { return true }
func (t *table) notes() []string { return nil }

func (t *table) refuse(err error) error {
	w, _ := errors.AsType[*wrong](err)
	line, column := t.csv.FieldPos(t.at[w.field])
	return badAt(t.file, line, column, w.text)
}

func (t *table) empty() error { return badAt(t.file, 2, 1, "there are no requests") }

// read is the next line. An error of its syntax has its place.
func (t *table) read() ([]string, error) {
	fields, err := t.csv.Read()
	if syntax, ok := errors.AsType[*csv.ParseError](err); ok {
		err = badAt(t.file, syntax.Line, syntax.Column, syntax.Err.Error())
	}
	return fields, err
}

// header finds the columns.
func (t *table) header() error {
	names, err := t.read()
	if err == io.EOF {
		return badAt(t.file, 1, 1, "the file is empty; its first line must name the columns: "+columnNames)
	}
	if err != nil {
		return err
	}
	what := map[string]string{}
	for is, name := range t.columns.named {
		what[name] = is
	}
	for i, name := range names {
		is, mapped := what[name]
		if !mapped {
			is = name
			if unit, isTime := timeColumns[name]; isTime {
				is = "time"
				if t.columns.named["time"] == "" {
					t.columns.unit = unit
				}
			}
			switch own := is == "time" || is == "process" || is == "key" || is == "tokens"; {
			case own && t.columns.named[is] != "", !own && t.columns.named != nil:
				continue // another column is mapped, or whoever maps columns knows of the rest
			case !own:
				return t.badName(i, fmt.Sprintf("unknown column %q; there are %s; for other names see --columns",
					name, columnNames))
			}
		}
		if first, again := t.at[is]; again {
			return t.badName(i, fmt.Sprintf("column %q says what column %q said already", name, names[first]))
		}
		t.at[is] = i
	}
	for is, name := range t.columns.named {
		if _, ok := t.at[is]; !ok {
			return t.badName(0, fmt.Sprintf("there is no column %q, which should be the %s; there are %s", name, is,
				strings.Join(names, ", ")))
		}
	}
	if _, ok := t.at["time"]; !ok {
		return t.badName(0, "there is no column with the time; there are "+columnNames)
	}
	return nil
}

func (t *table) badName(field int, text string) error {
	line, column := t.csv.FieldPos(field)
	return badAt(t.file, line, column, text)
}

func (t *table) next() (request, error) {
	fields, err := t.read()
	if err != nil {
		return request{}, err
	}
	of := func(what string) *string {
		if i, ok := t.at[what]; ok {
			return &fields[i]
		}
		return nil
	}
	return request{of("time"), of("process"), of("key"), of("tokens")}, nil
}

// textLog is a file with a request in a line, and with other lines.
type textLog struct {
	file   string
	lines  *bufio.Scanner
	names  map[string]string                                    // what a field is called, by what it is
	fields func(line string) (func(name string) *string, error) // of a line

	number, blank, left int    // lines: read, of these without a text, left out
	why                 string // the first line was left out
}

// lineMax bounds a line of a log.
const lineMax = 1 << 20

// newTextLog is a log whose fields have these names unless the columns say others.
func newTextLog(name string, from io.Reader, columns *Columns, names map[string]string) *textLog {
	l := &textLog{file: name, lines: bufio.NewScanner(from), names: names}
	l.lines.Buffer(nil, lineMax)
	for is, name := range columns.named {
		l.names[is] = name
	}
	return l
}

func (l *textLog) sorted() bool { return false }

func (l *textLog) refuse(err error) error {
	if l.left++; l.left == 1 {
		l.why = fmt.Sprintf("the first is line %d: %v", l.number, err)
	}
	return nil
}

func (l *textLog) empty() error {
	return badAt(l.file, 1, 1, fmt.Sprintf("none of its %d lines is a request; %s", l.number-l.blank, l.why))
}

func (l *textLog) notes() []string {
	if l.left == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d lines are no requests and were left out; %s", l.left, l.number-l.blank, l.why)}
}

func (l *textLog) next() (request, error) {
	for l.lines.Scan() {
		l.number++
		line := strings.TrimSpace(l.lines.Text())
		if line == "" {
			l.blank++
			continue
		}
		field, err := l.fields(line)
		if err != nil {
			_ = l.refuse(err)
			continue
		}
		of := func(what string) *string { return field(l.names[what]) }
		r := request{of("time"), of("process"), of("key"), of("tokens")}
		missing := ""
		for what, text := range map[string]*string{"time": r.time, "process": r.process, "key": r.key, "tokens": r.tokens} {
			if name := l.names[what]; name != "" && text == nil && (missing == "" || what == "time") {
				missing = name
			}
		}
		if missing == "" {
			return r, nil
		}
		_ = l.refuse(fmt.Errorf("it has no %s", missing))
	}
	if err := l.lines.Err(); err != nil {
		return request{}, err
	}
	return request{}, io.EOF
}

// accessLine is a line of the common log format, or of the combined one, with what some add.
var accessLine = regexp.MustCompile(`^(\S+) (\S+) (\S+) \[([^]]+)\] "((?:[^"\\]|\\.)*)" (\S+) (\S+)` +
	`(?: "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)")?`)

// accessNames are its fields; method and path are parts of request.
var accessNames = []string{"host", "ident", "user", "time", "request", "status", "bytes", "referer", "agent"}

func newAccessLog(name string, from io.Reader, columns *Columns) (format, error) {
	l := newTextLog(name, from, columns, map[string]string{"time": "time", "key": "host"})
	for is, name := range l.names {
		if !slices.Contains(accessNames, name) && name != "method" && name != "path" {
			return nil, fmt.Errorf("%w: an access log has no field %q for the %s; there are %s, method and path", ErrInvalid,
				name, is, strings.Join(accessNames, ", "))
		}
	}
	l.fields = func(line string) (func(string) *string, error) {
		found := accessLine.FindStringSubmatch(line)
		if found == nil {
			return nil, errors.New("it is not like HOST - USER [TIME] \"METHOD PATH HTTP\" STATUS BYTES")
		}
		return func(name string) *string {
			if name == "" {
				return nil
			}
			text := found[1+max(slices.Index(accessNames, name), 0)]
			if name == "method" || name == "path" {
				method, rest, _ := strings.Cut(found[5], " ")
				path, _, _ := strings.Cut(rest, " ")
				path, _, _ = strings.Cut(path, "?")
				text = map[string]string{"method": method, "path": path}[name]
			}
			return &text
		}, nil
	}
	return l, nil
}

// newJSONLines is a file with an object in a line. What the columns do not say has its own name
// where the first object has it.
func newJSONLines(name string, from *bufio.Reader, columns *Columns) (format, error) {
	l := newTextLog(name, from, columns, map[string]string{})
	l.fields = func(line string) (func(string) *string, error) {
		object, err := jsonObject(line)
		return func(name string) *string { return jsonField(object, name) }, err
	}
	start, _ := from.Peek(1 << 14)
	for line := range strings.Lines(string(start)) {
		field, err := l.fields(line)
		if err != nil {
			continue
		}
		for is, unit := range timeColumns {
			if columns.named["time"] == "" && field(is) != nil {
				l.names["time"], columns.unit = is, unit
			}
		}
		for _, is := range []string{"process", "key", "tokens"} {
			if l.names[is] == "" && field(is) != nil {
				l.names[is] = is
			}
		}
		break
	}
	if l.names["time"] == "" {
		return nil, badAt(name, 1, 1, "the first object has no field with the time; there are "+columnNames+
			"; for other names see --columns")
	}
	return l, nil
}

func jsonObject(line string) (object map[string]any, err error) {
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber() // 1700000000.123456789 has more digits than a double holds
	if err := d.Decode(&object); err != nil {
		return nil, fmt.Errorf("it is no JSON object: %w", err)
	}
	return object, nil
}

// jsonField is a text, a number or a truth value as a text; nil where there is none. A field of a
// field is a.b.
func jsonField(object map[string]any, name string) *string {
	value, ok := object[name]
	if !ok {
		outer, inner, _ := strings.Cut(name, ".")
		if section, isObject := object[outer].(map[string]any); isObject {
			return jsonField(section, inner)
		}
		return nil
	}
	switch value.(type) {
	case string, json.Number, bool:
		text := fmt.Sprint(value)
		return &text
	}
	return nil
}
