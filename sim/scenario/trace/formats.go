package trace

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// format reads the requests of a file, one by one.
type format interface {
	next() (request, error)   // io.EOF after the last
	sorted() bool             // they must be in order of time
	refuse(wrong error) error // the last request is wrong; nil leaves it out
	empty() error             // there was no request
	notes() []string
}

// formatOf tells the format of a file by its first lines. Some of them may be of no format.
func formatOf(name string, from *bufio.Reader, columns *Columns) (format, error) {
	start, _ := from.Peek(1 << 14)
	for _, line := range bytes.SplitN(start, []byte("\n"), 20) {
		switch line = bytes.TrimSpace(line); {
		case bytes.HasPrefix(line, []byte("{")), bytes.HasPrefix(line, []byte("[{")):
			return newJSONLines(name, from, columns), nil
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

func (t *table) sorted() bool { return true }

func (t *table) notes() []string { return nil }

func (t *table) refuse(err error) error {
	w, _ := errors.AsType[*wrong](err)
	line, column := t.csv.FieldPos(t.at[w.field])
	return badAt(t.file, line, column, w.text)
}

func (t *table) empty() error { return badAt(t.file, 2, 1, "there are no requests") }

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
	if err == io.EOF {
		return badAt(t.file, 1, 1, "the file is empty; its first line must name the columns: "+columnNames)
	}
	if err != nil {
		return fmt.Errorf("%w: it is no line with the names of columns, of an access log in the common or the "+
			"combined format, or of JSON objects", err)
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
