package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// readValue reads one RESP value (2 or 3), nested ones included, and returns its bytes as they came. What is of no
// known type is taken for a line, as an inline command is.
func readValue(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	n := 0
	switch line[0] {
	case '$', '=', '!', '*', '~', '>', '%':
		if n, err = strconv.Atoi(string(bytes.TrimSpace(line[1:]))); err != nil {
			return nil, fmt.Errorf("redistest: %q is no length: %w", line, err)
		}
	}
	if n < 0 { // a nil
		return line, nil
	}
	switch line[0] {
	case '$', '=', '!':
		body := make([]byte, n+2)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, err
		}
		return append(line, body...), nil
	case '%':
		n *= 2
	}
	for range n {
		item, err := readValue(r)
		if err != nil {
			return nil, err
		}
		line = append(line, item...)
	}
	return line, nil
}

// isScript reports whether request is EVAL or EVALSHA, as a client sends it: an array of strings.
func isScript(request []byte) bool {
	parts := bytes.SplitN(request, []byte("\r\n"), 4)
	if len(parts) < 4 || parts[0][0] != '*' {
		return false
	}
	return bytes.EqualFold(parts[2], []byte("evalsha")) || bytes.EqualFold(parts[2], []byte("eval"))
}
