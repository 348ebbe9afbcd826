package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// upstream is a fake model. It sends one word after the other, and its usage at the end.
type upstream struct {
	pace time.Duration // of words
	// answer returns the number of words in the answer, and of tokens used in all; 0 for a model that
	// fails.
	answer func(completion) (words, total int64)
}

// half answers with half of the allowed words.
func half(c completion) (words, total int64) {
	words = (c.MaxTokens + 1) / 2
	return words, c.promptTokens() + words
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c completion
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	words, total := u.answer(c)
	if total == 0 {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	pace := time.NewTicker(u.pace)
	defer pace.Stop()
	for range words {
		select {
		case <-pace.C:
		case <-r.Context().Done():
			return
		}
		fmt.Fprint(w, `data: {"choices": [{"delta": {"content": "word "}}]}`, "\n\n")
		_ = http.NewResponseController(w).Flush()
	}
	fmt.Fprintf(w, `data: {"choices": [], "usage": {"total_tokens": %d}}`+"\n\ndata: [DONE]\n\n", total)
}
