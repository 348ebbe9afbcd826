package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// isAccessLog tells the format of a file by its first lines, of which some may be of no format.
func isAccessLog(from *bufio.Reader) bool {
	start, _ := from.Peek(1 << 14)
	return slices.ContainsFunc(bytes.SplitN(start, []byte("\n"), 20), func(line []byte) bool {
		return accessLine.Match(bytes.TrimSpace(line))
	})
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

// readCSV reads a CSV file, of which every line must be right.
func (r *reader) readCSV(from io.Reader) error {
	t := &table{file: r.file, csv: csv.NewReader(from), columns: r.columns, at: map[string]int{}}
	t.csv.ReuseRecord = true
	if err := t.header(); err != nil {
		return err
	}
	for {
		fields, err := t.read()
		if errors.Is(err, io.EOF) && len(r.requests) == 0 {
			return badAt(t.file, 2, 1, "there are no requests")
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		of := func(what string) *string {
			if i, ok := t.at[what]; ok {
				return &fields[i]
			}
			return nil
		}
		err = r.add(request{of("time"), of("process"), of("key"), of("tokens")})
		if w, ok := errors.AsType[*wrong](err); ok {
			return t.badName(t.at[w.field], w.text)
		}
	}
}

// read returns the next line. A syntax error has its line and column.
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
	if errors.Is(err, io.EOF) {
		return badAt(t.file, 1, 1, "the file is empty; its first line must name the columns: "+columnNames)
	}
	if err != nil {
		return fmt.Errorf("%w: it is no line with the names of columns, or of an access log in the common or "+
			"the combined format; JSON becomes CSV by jq, see leasesim replay --help", err)
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
				continue // another column is mapped, or the caller has mapped columns and knows of the rest
			case !own:
				return t.badName(i, fmt.Sprintf("unknown column %q; there are %s; for other names see --columns",
					name, columnNames))
			}
		}
		if first, again := t.at[is]; again {
			return t.badName(i, fmt.Sprintf("column %q repeats column %q", name, names[first]))
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

// lineMax bounds a line of a log.
const lineMax = 1 << 20

// accessLine matches a line of the common log format, or of the combined one. Apache may add the
// virtual host before it, others add fields behind it. A user's name may have spaces.
var accessLine = regexp.MustCompile(`^(?:(\S+) (\S+) (-)|(\S+) (\S+)) ([^[]+) \[([^]]+)\] ` +
	`"((?:[^"\\]|\\.)*)" (\S+) (\S+)(?: "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)")?`)

// accessNames are its fields; method and path are parts of request.
var accessNames = []string{
	"host", "ident", "user", "time", "request", "status", "bytes", "referer", "agent", "vhost",
}

// readLog reads an access log. Lines that are no requests are left out.
func (r *reader) readLog(from io.Reader) error {
	names := map[string]string{"time": "time", "key": "host"}
	maps.Copy(names, r.columns.named)
	for is, name := range names {
		if !slices.Contains(accessNames, name) && name != "method" && name != "path" {
			return fmt.Errorf("%w: an access log has no field %q for the %s; there are %s, method and path",
				ErrInvalid, name, is, strings.Join(accessNames, ", "))
		}
	}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, lineMax)
	number, texts, left, why := 0, 0, 0, "" // lines: read, with a text, left out; the first of these
	for lines.Scan() {
		number++
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		texts++
		of, err := requestOf(line, names)
		if err == nil {
			err = r.add(of)
		}
		if err != nil {
			if left++; left == 1 {
				why = fmt.Sprintf("the first is line %d: %v", number, err)
			}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return badAt(r.file, number+1, 1, fmt.Sprintf("the line has more than %d bytes", lineMax))
	case err != nil:
		return err
	case len(r.requests) == 0:
		return badAt(r.file, 1, 1, fmt.Sprintf("none of its %d lines is a request; %s", texts, why))
	case left > 0:
		r.note(Some(left, texts, "%d lines", "is no request and was", "are no requests and were") +
			" left out; " + why)
	}
	return nil
}

// requestOf returns the fields of a line of an access log that have these names.
func requestOf(line string, names map[string]string) (request, error) {
	found := accessLine.FindStringSubmatch(line)
	if found == nil {
		return request{}, errors.New("it is not like HOST - USER [TIME] \"METHOD PATH HTTP\" STATUS BYTES")
	}
	vhost, host, ident := found[1], cmp.Or(found[2], found[4]), cmp.Or(found[3], found[5])
	found = append(append([]string{host, ident}, found[6:]...), vhost)
	of := map[string]*string{}
	for _, is := range []string{"time", "process", "key", "tokens"} {
		name, named := names[is]
		if !named {
			continue
		}
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
			return request{}, fmt.Errorf("it has no %s", name)
		}
		of[is] = &text
	}
	return request{of["time"], of["process"], of["key"], of["tokens"]}, nil
}
