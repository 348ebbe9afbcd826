package render

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"math"
	"strconv"
)

// WriteJSON writes v as indented JSON. Numbers that JSON does not have, NaN and the infinities, are an error.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// WriteCSV writes a head and rows as RFC 4180 has it: lines end with CR LF.
func WriteCSV(w io.Writer, head []string, rows [][]string) error {
	c := csv.NewWriter(w)
	c.UseCRLF = true
	if err := c.Write(head); err != nil {
		return err
	}
	return c.WriteAll(rows)
}

// Raw is x in the fewest digits that give x again, for programs: without an exponent unless x is tiny or huge.
func Raw(x float64) string {
	format := byte('f')
	if a := math.Abs(x); a != 0 && a < 1e-6 || a >= 1e21 {
		format = 'e'
	}
	return strconv.FormatFloat(x, format, -1, 64)
}
