package trace

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Write writes t as CSV with all columns. Read reads it back as an equal trace if its keys are numbered in the order of
// their first appearance, as those of every trace are that Read returned; other keys are numbered anew.
func Write(w io.Writer, t scenario.Trace) error {
	b := bufio.NewWriterSize(w, 1<<16)
	line := append(make([]byte, 0, 80), "time_s,process,key,tokens\n"...)
	for _, r := range t.Requests {
		if _, err := b.Write(line); err != nil {
			return err
		}
		line = append(line[:0], seconds(r.At)...)
		for _, n := range [...]int64{int64(r.Process), int64(r.Key), r.Cost} {
			line = strconv.AppendInt(append(line, ','), n, 10)
		}
		line = append(line, '\n')
	}
	if _, err := b.Write(line); err != nil {
		return err
	}
	return b.Flush()
}

// seconds is d in seconds, with as many digits as it needs.
func seconds(d time.Duration) string {
	whole, part := strconv.FormatInt(int64(d/time.Second), 10), int64(d%time.Second)
	if part == 0 {
		return whole
	}
	digits := strconv.FormatInt(part, 10)
	return whole + "." + strings.TrimRight(strings.Repeat("0", 9-len(digits))+digits, "0")
}
