package redisbucket

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// pastSize is the length of what is stored of one limit that has left, without the cells of a sliding
// window, and pastsMost how many there may be: past.lua says what is there.
const pastSize, pastsMost = 56, 2 * lease.LimitsMax

// errPast says that what is remembered of a limit cannot be trusted.
var errPast = fmt.Errorf("%w: what is remembered of a limit is out of range", errLayout)

// parsePasts reads the end of a bucket's text, at the running time now: the limits that have left.
// Token buckets may have been used up until forgot.
func parsePasts(text string, now, forgot int64) (pasts []protocol.PastDump, err error) {
	for text != "" {
		if len(text) < pastSize || len(pasts) == pastsMost {
			return nil, errPast
		}
		p, ok := parseScale(text)
		used, more := wholeAt(text, 30, 7), wholeAt(text, 44, 7)
		p.At = wholeAt(text, 37, 7)
		if !ok || p.At > now && (p.Limit.Windowed() || p.At > forgot) || wholeAt(text, 51, 5) != 0 {
			return nil, errPast
		}
		text = text[pastSize:]
		switch sc := &p.Scale; sc.Kind {
		case lease.KindSliding:
			if more < 1 || more > int64(min(len(text)/cellSize, len(p.Window.Cells))) {
				return nil, errPast
			}
			p.Window.Sum = used
			ok = used <= lease.WaitingMax &&
				parseCells(&p.Window, text[:cellSize*more], max(0, p.At-sc.Tick)/sc.Cell, p.At/sc.Cell)
			text = text[cellSize*more:]
		case lease.KindCalendar:
			p.Window = protocol.WindowDump{Sum: used, Period: more - 1, Begun: p.At}
			starts := float64(more-1)*float64(sc.Tick) + float64(sc.Offset)
			ok = used <= lease.WaitingMax && starts < wholeMax/2
		default:
			p.Used, p.Over = used, more
			ok = used > 0 && used+sc.Step <= wholeMax && more < wholeMax/2 && exact(sc.Capacity+more, *sc)
		}
		if !ok {
			return nil, errPast
		}
		pasts = append(pasts, p)
	}
	return pasts, nil
}

// parseScale reads a limit from text, and its scale as it stands there: the overcommit that had part
// in choosing the tick is not known any more. ok says whether both are possible.
func parseScale(text string) (p protocol.PastDump, ok bool) {
	burst, unit, step := wholeAt(text, 0, 7), wholeAt(text, 7, 7), wholeAt(text, 14, 7)
	code, per := wholeAt(text, 21, 1), wholeAt(text, 22, 8)
	p.Limit = lease.Limit{Per: time.Duration(per), Burst: burst, Tokens: burst}
	if code >= kindCode {
		p.Limit.Kind, p.Limit.Offset = lease.Kind(code/kindCode), time.Duration(unit)*time.Microsecond
		code %= kindCode
	} else {
		p.Limit.Tokens = tokensOf(unit, step, code, per)
	}
	if code&burstUnsaid != 0 {
		p.Limit.Burst = 0
	}
	scale, err := p.Limit.Scale(0)
	if err != nil || code&^burstUnsaid >= int64(len(ticks)) {
		return p, false
	}
	if !p.Limit.Windowed() {
		// A coarser tick than it has without an overcommit holds it too.
		scale.Unit, scale.Step, scale.Tick = unit, step, ticks[code&^burstUnsaid]
		return protocol.PastDump{Limit: p.Limit, Scale: scale}, scale.Capacity == burst && exact(burst, scale)
	}
	p.Scale = scale
	return p, scale.Capacity == burst && code&^burstUnsaid == 0 && scale.Tick == step && scale.Offset == unit
}

// tokensOf is the tokens of a limit with such a scale: step/unit is tokens*tick/per in lowest terms,
// and parts is by what the two were divided.
func tokensOf(unit, step, code, per int64) int64 {
	if unit <= 0 || int(code%burstUnsaid) >= len(ticks) {
		return 0
	}
	parts := uint64(per) / uint64(unit)
	hi, lo := bits.Mul64(parts, uint64(step))
	divisor := uint64(ticks[code%burstUnsaid]) * 1000
	if hi >= divisor {
		return 0
	}
	tokens, _ := bits.Div64(hi, lo, divisor)
	return int64(tokens)
}

// exact reports whether burst tokens, and a refill, can be counted in the scale.
func exact(burst int64, sc lease.Scale) bool {
	fits := func(a, b int64) bool {
		hi, lo := bits.Mul64(uint64(a), uint64(b))
		return hi == 0 && lo < wholeMax/2
	}
	return burst > 0 && sc.Unit > 0 && sc.Step > 0 && sc.Step < wholeMax/2 &&
		fits(burst, sc.Unit) && (sc.Tick == 1 || fits(sc.Step, sc.Tick))
}
