package forge

import "time"

// How many deliveries are remembered, and for how long.
const (
	maxSeen  = 1024
	seenTime = 10 * time.Minute
)

// Seen remembers deliveries, so that one which comes twice wakes once: two webhooks of one repository, a proxy that tries
// again, somebody who replays what he overheard. It goes by the body's digest too, since no signature covers the id. A
// wake that is held back wrongly costs the time to the next poll. Not for use by several goroutines at once.
type Seen struct {
	order []seenAt // oldest first
	at    map[string]time.Time
}

type seenAt struct {
	key string
	at  time.Time
}

// Fresh reports whether w is new at this time, and remembers it. Times come from one monotonic clock.
func (s *Seen) Fresh(w Wake, now time.Time) bool {
	if s.at == nil {
		s.at = map[string]time.Time{}
	}
	for len(s.order) > 0 && (len(s.order) > 2*maxSeen-2 || now.Sub(s.order[0].at) >= seenTime) {
		if old := s.order[0]; s.at[old.key].Equal(old.at) {
			delete(s.at, old.key)
		}
		s.order = s.order[1:]
	}
	fresh := true
	for _, key := range []string{"id " + string(w.Forge) + " " + w.Delivery, "body " + w.Digest} {
		if key == "id "+string(w.Forge)+" " || key == "body " {
			continue
		}
		if _, known := s.at[key]; known {
			fresh = false
			continue
		}
		s.at[key], s.order = now, append(s.order, seenAt{key, now})
	}
	return fresh
}
