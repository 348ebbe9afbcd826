package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

// series is one line of a chart: a value for each moment that has one.
type series struct {
	Labels map[string]string
	Name   string
	Points []point
}

type point struct {
	At    time.Time
	Value float64
}

// prometheus asks a Prometheus server by its HTTP interface.
type prometheus struct{ base string }

func (p prometheus) get(ctx context.Context, path string, query url.Values, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, response.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}

// span is the window of time that the charts show.
type span struct {
	From, To time.Time
	Step     time.Duration
}

// over runs a range query. Moments without a number (NaN, as of 0/0) are left out, so a query that
// has nothing else returns no series, as a panel would show nothing.
func (p prometheus) over(ctx context.Context, expr string, s span) ([]series, error) {
	var found struct {
		Result []struct {
			Metric map[string]string
			Values [][2]any
		}
	}
	err := p.get(ctx, "/api/v1/query_range", url.Values{
		"query": {expr},
		"start": {fmt.Sprint(s.From.Unix())},
		"end":   {fmt.Sprint(s.To.Unix())},
		"step":  {fmt.Sprint(s.Step.Seconds())},
	}, &found)
	if err != nil {
		return nil, err
	}
	var all []series
	for _, r := range found.Result {
		one := series{Labels: r.Metric}
		for _, v := range r.Values {
			at, _ := v[0].(float64)
			text, _ := v[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, err
			}
			if !math.IsNaN(value) && !math.IsInf(value, 0) {
				one.Points = append(one.Points, point{At: time.UnixMilli(int64(at * 1000)), Value: value})
			}
		}
		if len(one.Points) > 0 {
			all = append(all, one)
		}
	}
	return all, nil
}

var legendLabel = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// named gives s the name that the target's legend says.
func (s series) named(t target) series {
	s.Name = legendLabel.ReplaceAllStringFunc(t.LegendFormat, func(label string) string {
		return s.Labels[legendLabel.FindStringSubmatch(label)[1]]
	})
	if s.Name == "" {
		s.Name = fmt.Sprint(s.Labels)
	}
	return s
}
