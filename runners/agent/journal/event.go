package journal

import (
	"encoding/json"
	"io"
	"strings"
	"time"
)

// maxText bounds each text of an event, bytes.
const maxText = 2 << 10

// Event is one line of an attempt's events.
type Event struct {
	Time    string `json:"time"`  // RFC 3339, the worker's clock, for people
	Event   string `json:"event"` // captured, opened, fetched, resumed, started, renewed, milestone, …
	Attempt int64  `json:"attempt"`
	Step    int64  `json:"step,omitempty"`
	Reason  string `json:"reason,omitempty"` // why, or what came of it: one sentence
}

// Events writes events as JSON lines.
type Events struct {
	W       io.Writer
	Attempt int64
}

// Say writes one event. Texts are bounded and made valid UTF-8.
func (e Events) Say(event string, step int64, reason string) {
	b, err := json.Marshal(Event{Time: time.Now().UTC().Format(time.RFC3339Nano), Event: event, Attempt: e.Attempt,
		Step: step, Reason: Bound(reason, maxText)})
	if err == nil { // always: numbers and valid texts
		_, _ = e.W.Write(append(b, '\n')) // a stream never fails
	}
}

// Bound keeps the first max bytes of a text, as valid UTF-8.
func Bound(s string, max int) string {
	if len(s) > max {
		s = s[:max]
	}
	return strings.ToValidUTF8(s, "")
}
