package world

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// old is a version of a lease that was replaced; nil bytes: there was none.
type old struct {
	bucket.Info
	body  []byte
	until time.Duration // it was replaced then
}

// drawStale draws whether reads of leases may be stale: a store that has a cache in front of it, which the probe would refuse.
// It costs money, and nothing else. From sources of its own: the other seeds are what they were.
func (s *setup) drawStale(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 6))
	if r.IntN(20) == 0 {
		s.staleReads = pickOf(r, 0.02, 0.1, 0.3)
	}
	s.stales = rand.New(rand.NewPCG(seed, 7))
}

// before is what lies under the key of a lease.
func (s *store) before(key string) (o old) {
	if s.w.s.staleReads == 0 || !strings.HasPrefix(key, record.WitnessPrefix) {
		return o
	}
	o.until = s.w.now()
	at, err := s.mem.Get(s.w.ctx, key, bucket.Range{})
	if err != nil {
		return o
	}
	defer at.Body.Close()
	if o.body, err = io.ReadAll(at.Body); err == nil {
		o.Info = at.Info
	}
	return o
}

// stale draws whether a read gets the version before the newest one.
func (s *store) stale(key string) bool {
	if s.w.healed || s.w.s.staleReads == 0 || !strings.HasPrefix(key, record.WitnessPrefix) {
		return false
	}
	o, is := s.was[key]
	return is && s.w.now()-o.until < oldest && s.w.s.stales.Float64() < s.w.s.staleReads
}

// past is the answer of a read that is served an old version.
func (s *store) past(key string, now *bucket.Object) (*bucket.Object, error) {
	s.w.fired(StaleRead)
	o := s.was[key]
	if now != nil {
		_ = now.Body.Close()
	}
	if o.body == nil || now == nil {
		return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.NotFound}
	}
	return &bucket.Object{Info: o.Info, Body: io.NopCloser(bytes.NewReader(o.body)), Date: now.Date}, nil
}
