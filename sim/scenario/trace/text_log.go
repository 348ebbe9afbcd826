package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// textLog is a file with a request in a line, and with other lines.
type textLog struct {
	file    string
	lines   *bufio.Scanner
	columns *Columns
	names   map[string]string                                    // the log's name of a field, by the field
	fields  func(line string) (func(name string) *string, error) // of a line

	number, blank, left int    // lines: read, of these without a text, left out
	why                 string // the first line was left out
}

// lineMax bounds a line of a log.
const lineMax = 1 << 20

// newTextLog returns a log whose fields have these names unless the columns name others.
func newTextLog(name string, from io.Reader, columns *Columns, names map[string]string) *textLog {
	l := &textLog{file: name, lines: bufio.NewScanner(from), columns: columns, names: names}
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
	some := Some(l.left, l.number-l.blank, "%d lines", "is no request and was", "are no requests and were")
	return []string{some + " left out; " + l.why}
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
		if errors.Is(err, ErrInvalid) {
			return request{}, err
		}
		if err != nil {
			_ = l.refuse(err)
			continue
		}
		of := func(what string) *string { return field(l.names[what]) }
		r := request{of("time"), of("process"), of("key"), of("tokens")}
		missing := ""
		for what, text := range map[string]*string{
			"time": r.time, "process": r.process, "key": r.key, "tokens": r.tokens,
		} {
			if name := l.names[what]; name != "" && text == nil && (missing == "" || what == "time") {
				missing = name
			}
		}
		if missing == "" {
			return r, nil
		}
		_ = l.refuse(fmt.Errorf("it has no %s", missing))
	}
	err := l.lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = badAt(l.file, l.number+1, 1, fmt.Sprintf("the line has more than %d bytes", lineMax))
	}
	return request{}, cmp.Or(err, io.EOF)
}

// accessLine matches a line of the common log format, or of the combined one. Apache may add the
// virtual host before it, others add fields behind it. A user's name may have spaces.
var accessLine = regexp.MustCompile(`^(?:(\S+) (\S+) (-)|(\S+) (\S+)) ([^[]+) \[([^]]+)\] ` +
	`"((?:[^"\\]|\\.)*)" (\S+) (\S+)(?: "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)")?`)

// accessNames are its fields; method and path are parts of request.
var accessNames = []string{
	"host", "ident", "user", "time", "request", "status", "bytes", "referer", "agent", "vhost",
}

func newAccessLog(name string, from io.Reader, columns *Columns) (format, error) {
	l := newTextLog(name, from, columns, map[string]string{"time": "time", "key": "host"})
	for is, name := range l.names {
		if !slices.Contains(accessNames, name) && name != "method" && name != "path" {
			return nil, fmt.Errorf("%w: an access log has no field %q for the %s; there are %s, method and path",
				ErrInvalid, name, is, strings.Join(accessNames, ", "))
		}
	}
	l.fields = func(line string) (func(string) *string, error) {
		found := accessLine.FindStringSubmatch(line)
		if found == nil {
			return nil, errors.New("it is not like HOST - USER [TIME] \"METHOD PATH HTTP\" STATUS BYTES")
		}
		vhost, host, ident := found[1], cmp.Or(found[2], found[4]), cmp.Or(found[3], found[5])
		found = append(append([]string{host, ident}, found[6:]...), vhost)
		return func(name string) *string {
			text := ""
			if i := slices.Index(accessNames, name); i >= 0 {
				text = found[i]
			} else {
				method, rest, _ := strings.Cut(found[4], " ")
				path, _, _ := strings.Cut(rest, " ")
				path, _, _ = strings.Cut(path, "?")
				text = map[string]string{"method": method, "path": path}[name]
			}
			if text == "" {
				return nil
			}
			return &text
		}, nil
	}
	return l, nil
}

// newJSONLines reads a file with an object in a line. A field that the columns do not map has its own
// name if the first object has it. If only a later object has it, the file is refused: the requests
// before it would be taken for those of one key, or of any process.
func newJSONLines(name string, from io.Reader, columns *Columns) format {
	l := newTextLog(name, from, columns, map[string]string{})
	first := true
	l.fields = func(line string) (func(string) *string, error) {
		object, err := jsonObject(line)
		if err != nil {
			return nil, err
		}
		field := func(name string) *string { return jsonField(object, name) }
		for _, is := range ownNames {
			if l.names[is] != "" || field(is) == nil {
				continue
			}
			if !first {
				return nil, badAt(name, l.number, 1, fmt.Sprintf("it has a %s and the first object has none; "+
					"with --columns %[1]s=%[1]s those without are left out", is))
			}
			l.names[is] = is
		}
		if first && columns.named["time"] == "" {
			err = l.ownTime(field)
		}
		first = false
		return field, err
	}
	return l
}

// ownTime finds the time of the first object by its own names.
func (l *textLog) ownTime(field func(string) *string) error {
	for _, is := range slices.Sorted(maps.Keys(timeColumns)) {
		switch other := l.names["time"]; {
		case field(is) == nil:
		case other != "":
			return badAt(l.file, l.number, 1,
				fmt.Sprintf("it has %s and %s; say which counts, as in --columns %[1]s=%[1]s", other, is))
		default:
			l.names["time"], l.columns.unit = is, timeColumns[is]
		}
	}
	if l.names["time"] == "" {
		return badAt(l.file, l.number, 1, "the first object has no field with the time; there are "+columnNames+
			"; for other names see --columns")
	}
	return nil
}

// ownNames are the fields of a request beside its time.
var ownNames = []string{"process", "key", "tokens"}

func jsonObject(line string) (object map[string]any, err error) {
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber() // 1700000000.123456789 has more digits than a double holds
	err = d.Decode(&object)
	if _, more := d.Token(); err == nil && more != io.EOF {
		err = errors.New("more follows it in its line")
	}
	if err != nil {
		return nil, fmt.Errorf("it is no JSON object by itself, as jq -c writes it: %w", err)
	}
	return object, nil
}

// jsonField returns a text, a number or a truth value as a text; nil where there is none. A field of
// a field is a.b. A list of one, as of a header's values, counts as its element.
func jsonField(object map[string]any, name string) *string {
	value, ok := object[name]
	if !ok {
		outer, inner, _ := strings.Cut(name, ".")
		if section, isObject := object[outer].(map[string]any); isObject {
			return jsonField(section, inner)
		}
		return nil
	}
	if list, ok := value.([]any); ok && len(list) == 1 {
		value = list[0]
	}
	switch value.(type) {
	case string, json.Number, bool:
		text := fmt.Sprint(value)
		return &text
	}
	return nil
}

// Some writes how many of all things do something: "1,200 of its 2,000 requests come". all is a
// format for their number, does the verb for one of them and do the verb for several.
func Some(n, of int, all, does, do string) string {
	return message.NewPrinter(language.English).Sprintf("%d of "+all+" %s", n, of, either(n == 1, does, do))
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
