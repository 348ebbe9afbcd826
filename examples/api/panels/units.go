package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// format writes a value in one of Grafana's units, shortly.
func format(value float64, unit string, decimals *int) string {
	switch unit {
	case "percentunit":
		return short(value*100, decimals) + " %"
	case "s":
		return seconds(value, decimals)
	}
	text := thousands(value, decimals)
	if suffix, ok := strings.CutPrefix(unit, "suffix:"); ok {
		text += " " + suffix
	}
	return text
}

func seconds(value float64, decimals *int) string {
	size := math.Abs(value)
	switch {
	case size == 0:
		return "0 s"
	case size < 1e-3:
		return short(value*1e6, decimals) + " µs"
	case size < 1:
		return short(value*1e3, decimals) + " ms"
	case size < 120:
		return short(value, decimals) + " s"
	}
	return time.Duration(value * 1e9).Round(time.Second).String()
}

func thousands(value float64, decimals *int) string {
	switch size := math.Abs(value); {
	case size >= 1e6:
		return short(value/1e6, decimals) + " M"
	case size >= 1e4:
		return short(value/1e3, decimals) + " k"
	}
	return short(value, decimals)
}

// short keeps three digits, or as many decimals as the panel asks for.
func short(value float64, decimals *int) string {
	if decimals != nil {
		return strconv.FormatFloat(value, 'f', *decimals, 64)
	}
	if math.Abs(value) >= 100 {
		return fmt.Sprintf("%.0f", value)
	}
	text := fmt.Sprintf("%.3g", value)
	if strings.Contains(text, "e") {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return text
}

// ticks are some round numbers from low to high, about as many as wanted.
func ticks(low, high float64, wanted int) []float64 {
	if high <= low {
		return []float64{low}
	}
	rough := (high - low) / float64(wanted)
	step := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if step*factor >= rough {
			step *= factor
			break
		}
	}
	var all []float64
	for n := math.Ceil(low / step); n*step <= high*1.0001; n++ {
		all = append(all, n*step)
	}
	return all
}
