package judge

import (
	"fmt"
	"strings"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// place says where a pointer points.
func place(p *record.Pointer) string {
	if p == nil {
		return "nothing"
	}
	return fmt.Sprintf("attempt %d milestone %d step %d", p.Attempt, p.Milestone, p.Step)
}

// moved judges one step of the resume pointer, w.last.Resume to r.Resume.
func (j *Judge) moved(w *work, e *history.Entry, r *witness.Record) {
	old, to, name := &w.last, r.Resume, history.Name(e.Key)
	from := old.Resume
	if to == nil {
		j.fail("I2", w, e.Key, "%s took the pointer away from the %s; it was at %s", who(e.Actor), name, place(from))
		return
	}
	switch {
	case old.State != witness.Held || r.State != witness.Held:
		j.fail("I2", w, e.Key, "%s moved the pointer of the %s to %s while going from %s to %s; only a holder moves it", who(e.Actor), name, place(to), old.State, r.State)
	case e.Actor != w.holder:
		j.fail("I2", w, e.Key, "%s moved the pointer of the %s to %s, but %s holds the lease", who(e.Actor), name, place(to), who(w.holder))
	case to.Attempt != old.Attempt:
		j.fail("I2", w, e.Key, "%s moved the pointer of the %s to %s, but holds attempt %d", who(e.Actor), name, place(to), old.Attempt)
	}
	if from != nil && (to.Attempt < from.Attempt || to.Step < from.Step || to.Attempt == from.Attempt && to.Milestone <= from.Milestone) {
		j.fail("I2", w, e.Key, "%s moved the pointer of the %s back, from %s to %s", who(e.Actor), name, place(from), place(to))
	}
	if m := j.name(w, e, to.Manifest, to.SHA256); m != nil {
		if m.Attempt != to.Attempt || m.Milestone != to.Milestone || m.Step != to.Step {
			j.fail("I3", w, to.Manifest, "%s named %s as %s, but it is attempt %d milestone %d step %d", who(e.Actor), history.Name(to.Manifest), place(to), m.Attempt, m.Milestone, m.Step)
		}
		j.grown(w, e, to.Manifest, m, from)
	}
	w.append(*to, j.n)
}

// grown: the snapshot that is named grew from the pointer that it replaces, and so its whole ancestry is the line that
// the pointer went: each ancestor was there by a move that was judged, while its attempt held.
func (j *Judge) grown(w *work, e *history.Entry, key string, m *record.Manifest, from *record.Pointer) {
	if !same(m.Parent, from) {
		j.fail("I2", w, key, "%s named %s, which grew from %s, but the pointer was at %s", who(e.Actor), history.Name(key), place(m.Parent), place(from))
	}
	if m.Parent == nil {
		return
	}
	if _, ever := w.ever[*m.Parent]; !ever {
		j.fail("I4", w, key, "%s named %s, whose ancestor %s (by %s) never was on the pointer's line", who(e.Actor), history.Name(key), place(m.Parent), who(w.owners[m.Parent.Attempt]))
	}
}

// finished judges the end of a work.
func (j *Judge) finished(w *work, e *history.Entry, r *witness.Record) {
	f := r.Finished
	if f == nil {
		return // FORMAT
	}
	if f.Attempt != w.last.Attempt {
		j.fail("I5", w, e.Key, "%s finished the %s with the result of attempt %d, but holds attempt %d", who(e.Actor), history.Name(e.Key), f.Attempt, w.last.Attempt)
	}
	m := j.name(w, e, f.Manifest, f.SHA256)
	switch {
	case m == nil:
	case m.Attempt != f.Attempt || m.Milestone != 0:
		j.fail("I3", w, f.Manifest, "%s named %s as the result of attempt %d, but it is attempt %d milestone %d", who(e.Actor), history.Name(f.Manifest), f.Attempt, m.Attempt, m.Milestone)
	case m.Parent != nil && !same(m.Parent, r.Resume):
		j.fail("I4", w, f.Manifest, "%s finished with %s, which grew from %s, but the pointer is at %s", who(e.Actor), history.Name(f.Manifest), place(m.Parent), place(r.Resume))
	}
}

// name is I3: what is named exists, whole, with the hashes that are stated; and it is frozen from here on. nil: it was
// reported and cannot be followed.
func (j *Judge) name(w *work, e *history.Entry, key, sum string) *record.Manifest {
	o := j.objects[key]
	if o == nil {
		j.fail("I3", w, key, "%s named %s, which is not there", who(e.Actor), history.Name(key))
		return nil
	}
	o.named = true
	if o.sha256() != sum {
		j.fail("I3", w, key, "%s named %s with sha256 %.12s, but what %s wrote has %.12s", who(e.Actor), history.Name(key), sum, who(o.by), o.sha256())
		return nil
	}
	var m record.Manifest
	if err := record.Decode(o.body, record.MaxManifest, &m); err != nil {
		j.fail("I3", w, key, "%s named %s (by %s), which is no manifest: %v", who(e.Actor), history.Name(key), who(o.by), err)
		return nil
	}
	if m.Work != w.id {
		j.fail("I3", w, key, "%s named %s, which says that it is of work %.12s", who(e.Actor), history.Name(key), m.Work)
	}
	folder := strings.TrimSuffix(key, "manifest.json")
	for _, f := range m.Files {
		part := j.objects[folder+f.Path]
		if part == nil {
			j.fail("I3", w, folder+f.Path, "%s named %s, of which %s is not there", who(e.Actor), history.Name(key), history.Name(folder+f.Path))
			continue
		}
		part.named = true
		if int64(len(part.body)) != f.Size || part.sha256() != f.SHA256 {
			j.fail("I3", w, folder+f.Path, "%s named %s, but %s (by %s) has %d bytes of sha256 %.12s and should have %d of %.12s",
				who(e.Actor), history.Name(key), history.Name(folder+f.Path), who(part.by), len(part.body), part.sha256(), f.Size, f.SHA256)
		}
	}
	return &m
}
