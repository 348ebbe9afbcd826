package hybrid

import (
	"errors"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// denied is what the denial of a request for n tokens comes to beside that it is counted. It
// reports whether the request is admitted all the same. Limiter.watched says whether there is
// anything to do.
func (l *Limiter) denied(key string, n int64) (admitted bool) {
	if f := l.cfg.Events.Denied; f != nil {
		f(key, n)
	}
	return l.cfg.Policy.Shadow
}

// overrules reports whether Policy.Shadow admits a request that was denied with err: by a limit,
// for its lack, or because nobody could decide. It is admitted without tokens and leaves no debt.
func (l *Limiter) overrules(err error) bool {
	return l.cfg.Policy.Shadow && (err == nil || errors.Is(err, ErrUnavailable) ||
		errors.Is(err, ErrExceedsBurst) || errors.Is(err, ErrInvalidConfig))
}

// patience is how long a request waits. With Policy.Shadow nobody waits for longer than Allow does:
// who would have to is admitted at once.
func (l *Limiter) patience(p protocol.Patience) protocol.Patience {
	if l.cfg.Policy.Shadow && p == protocol.InLine {
		return protocol.OneCall
	}
	return p
}
