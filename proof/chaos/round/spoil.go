//go:build linux

package round

import (
	"fmt"
	"path"

	"github.com/headway-run/headway/runners/record"
)

// Spoiler breaks what a round has left behind, behind the product's back, so that tests can see the harness fail.
type Spoiler struct{ r *run }

// Milestone changes a byte of a file of the milestone that a job's resume pointer names.
func (s *Spoiler) Milestone(job string) error {
	lease, ok := s.r.lease(s.r.book.works()[job])
	if !ok || lease.Resume == nil {
		return fmt.Errorf("%s has no milestone", job)
	}
	return s.flip(lease.Resume.Manifest)
}

// Result writes other bytes over a job's metrics.
func (s *Spoiler) Result(job string) error {
	lease, ok := s.r.lease(s.r.book.works()[job])
	if !ok || lease.Finished == nil {
		return fmt.Errorf("%s has no result", job)
	}
	return s.flip(lease.Finished.Manifest)
}

// Launched says with which launch a job was finished, and where the platform keeps its launches and the store is: enough
// to start a worker that nobody will end.
func (s *Spoiler) Launched(job string) (work string, dispatch int64, scratch, store string, err error) {
	work = s.r.book.works()[job]
	lease, ok := s.r.lease(work)
	if !ok || lease.Finished == nil {
		return "", 0, "", "", fmt.Errorf("%s has no result", job)
	}
	return work, lease.Dispatch, s.r.scratch(), s.r.c.Server.URL(s.r.proxy.Addr(), s.r.prefix), nil
}

// flip changes the last byte of the first file of a manifest.
func (s *Spoiler) flip(manifest string) error {
	raw, _ := s.r.stored(manifest)
	var m record.Manifest
	if err := record.Decode(raw, record.MaxManifest, &m); err != nil {
		return err
	}
	key := path.Dir(manifest) + "/" + m.Files[0].Path
	body, found := s.r.stored(key)
	if !found || len(body) == 0 {
		return fmt.Errorf("%s has no bytes", key)
	}
	body[len(body)-1] ^= 1
	return s.r.c.Server.Put(s.r.prefix, key, body)
}
