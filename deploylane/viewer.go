package deploylane

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Bounds of one look of a Viewer.
const (
	viewPages    = 20 // lists, of a thousand keys each
	viewModels   = 64
	viewVersions = 50 // of one model, the newest
	viewMoves    = 10 // of one pointer, the newest
	viewReads    = 400
	viewBytes    = 16 << 20 // of the records that are shown, together
	viewAtOnce   = 8
)

// View is what a lane's store says of its releases to somebody who has none of its keys: no signature in it was checked.
type View struct {
	Models   []ViewModel `json:"models"`
	LeftOut  []string    `json:"left_out,omitempty"` // what is there and not shown
	Requests int64       `json:"requests"`           // that this look cost
}

// ViewModel is one model and its releases, the newest version first.
type ViewModel struct {
	Model    string    `json:"model"`
	Live     string    `json:"live,omitempty"` // version that its pointer names
	Trouble  string    `json:"trouble,omitempty"`
	Releases []Lineage `json:"releases"`
	Pointer  []Move    `json:"pointer,omitempty"` // its places, the newest first
}

// Viewer reads a lane's store and writes nothing. A look costs one list for each thousand keys, and one read for each record
// that was not there at the look before. Not safe for several goroutines.
type Viewer struct {
	Store bucket.Bucket
	seen  map[string]glimpse // by key
}

// glimpse is what was read of one object.
type glimpse struct {
	version bucket.Version
	step    *Step
	current *Current
	wrong   string // why it is neither
}

// viewed is what a list says of one model.
type viewed struct {
	versions map[string][]bucket.Info
	moves    []bucket.Info
	current  *bucket.Info
}

// Look reads what is new.
func (v *Viewer) Look(ctx context.Context) (*View, error) {
	out := &View{Models: []ViewModel{}}
	models, err := v.list(ctx, out)
	if err != nil {
		return nil, err
	}
	names := sorted(models)
	if n := len(names) - viewModels; n > 0 {
		out.LeftOut = append(out.LeftOut, fmt.Sprintf("%d models of %d", n, len(names)))
		names = names[:viewModels]
	}
	chosen := make(map[string][]string, len(names))
	for _, name := range names {
		chosen[name] = newest(models[name].versions)
		if n := len(chosen[name]) - viewVersions; n > 0 {
			out.LeftOut = append(out.LeftOut, fmt.Sprintf("%s: the %d oldest versions", name, n))
			chosen[name] = chosen[name][:viewVersions]
		}
	}
	v.read(ctx, v.wanted(names, chosen, models, out), out)
	for _, name := range names {
		out.Models = append(out.Models, v.model(name, chosen[name], models[name]))
	}
	return out, ctx.Err()
}

// list sorts what lies in the store by model and version. What no lane writes is passed over.
func (v *Viewer) list(ctx context.Context, out *View) (map[string]*viewed, error) {
	models, after := map[string]*viewed{}, ""
	for n := 0; ; n++ {
		if n == viewPages {
			out.LeftOut = append(out.LeftOut, fmt.Sprintf("what comes after the first %d000 keys", viewPages))
			return models, nil
		}
		page, err := v.Store.List(ctx, "lane/", after, 1000)
		out.Requests++
		if err != nil {
			return nil, err
		}
		for _, it := range page.Items {
			after = it.Key
			parts := strings.Split(it.Key, "/")
			if len(parts) < 3 || len(parts) > 4 || tag.CheckModel(parts[1]) != "" {
				continue
			}
			m := models[parts[1]]
			if m == nil {
				m = &viewed{versions: map[string][]bucket.Info{}}
			}
			if m.put(parts[2:], it) {
				models[parts[1]] = m
			}
		}
		if !page.More || len(page.Items) == 0 {
			return models, nil
		}
	}
}

// put takes what is one of a release's records, the pointer, or a place of it.
func (m *viewed) put(parts []string, it bucket.Info) bool {
	switch {
	case len(parts) == 1 && parts[0] == "current":
		m.current = &it
		return true
	case len(parts) == 1:
		return false
	case parts[0] == "history" && strings.HasSuffix(parts[1], ".json"):
		m.moves = append(m.moves, it)
		return true
	}
	name, is := strings.CutSuffix(parts[1], ".json")
	if _, err := tag.ParseVersion(parts[0]); err != nil || !is || !slices.Contains(Stages(), name) && !strings.HasPrefix(name, "target-") {
		return false
	}
	m.versions[parts[0]] = append(m.versions[parts[0]], it)
	return true
}

// newest gives versions, the highest first.
func newest(m map[string][]bucket.Info) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		x, _ := tag.ParseVersion(a) // it was parsed before
		y, _ := tag.ParseVersion(b)
		return cmp.Or(-x.Compare(y), strings.Compare(a, b))
	})
}

// wanted chooses what is read: pointers first, then the newest version of each model, and so on, as far as the bounds let it. What
// is not wanted any more is forgotten.
func (v *Viewer) wanted(names []string, chosen map[string][]string, models map[string]*viewed, out *View) (todo []bucket.Info) {
	var all []bucket.Info
	for _, name := range names {
		m := models[name]
		if m.current != nil {
			all = append(all, *m.current)
		}
		slices.SortFunc(m.moves, func(a, b bucket.Info) int { return strings.Compare(b.Key, a.Key) })
		m.moves = m.moves[:min(len(m.moves), viewMoves)]
		all = append(all, m.moves...)
	}
	for i := range viewVersions {
		for _, name := range names {
			if i < len(chosen[name]) {
				all = append(all, models[name].versions[chosen[name][i]]...)
			}
		}
	}
	kept, size, late, large := make(map[string]glimpse, len(all)), int64(0), 0, 0
	for _, it := range all {
		limit := int64(maxRecord)
		if strings.HasSuffix(it.Key, "/current") {
			limit = record.MaxRecord
		}
		g, known := v.seen[it.Key]
		switch size += min(it.Size, limit); {
		case it.Size > limit:
			kept[it.Key] = glimpse{version: it.Version, wrong: fmt.Sprintf("has %d bytes, at most %d are read", it.Size, limit)}
			size -= limit
		case size > viewBytes:
			large++
		case known && g.version == it.Version:
			kept[it.Key] = g
		case len(todo) < viewReads:
			todo = append(todo, it)
		default:
			late++
		}
	}
	v.seen = kept
	if large > 0 {
		out.LeftOut = append(out.LeftOut, fmt.Sprintf("%d records beyond the first %d MiB", large, viewBytes>>20))
	}
	if late > 0 {
		out.LeftOut = append(out.LeftOut, fmt.Sprintf("%d records that come with the next looks", late))
	}
	return todo
}

// read gets objects, a few at a time. One that vanished is left out, and one that could not be had is tried again by the next look.
func (v *Viewer) read(ctx context.Context, todo []bucket.Info, out *View) {
	var all sync.WaitGroup
	var mu sync.Mutex
	failed := 0
	queue := make(chan bucket.Info)
	for range min(viewAtOnce, len(todo)) {
		all.Go(func() {
			for it := range queue {
				g, err := v.glimpse(ctx, it.Key)
				mu.Lock()
				if out.Requests++; err == nil {
					v.seen[it.Key] = g
				} else if !bucket.Is(err, bucket.NotFound) {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	for _, it := range todo {
		queue <- it
	}
	close(queue)
	all.Wait()
	if failed > 0 {
		out.LeftOut = append(out.LeftOut, fmt.Sprintf("%d records that could not be read just now", failed))
	}
}

// glimpse reads one object. An error says that the store did not give it.
func (v *Viewer) glimpse(ctx context.Context, key string) (glimpse, error) {
	b, info, err := get(ctx, v.Store, key, maxRecord)
	if broken, is := errors.AsType[*Broken](err); is {
		return glimpse{version: info.Version, wrong: broken.Text}, nil
	}
	if err != nil {
		return glimpse{}, err
	}
	g := glimpse{version: info.Version}
	if strings.HasSuffix(key, "/current") {
		var c Current
		if err := json.Unmarshal(b, &c); err != nil || len(b) > record.MaxRecord {
			g.wrong = "cannot be read"
			return g, nil
		}
		g.current = &Current{N: c.N, Version: word(c.Version), Release: link(c.Release)}
		return g, nil
	}
	var r Record
	s, err := unwrap(key, b)
	if err == nil {
		r, err = s.open(key)
	}
	if broken, is := errors.AsType[*Broken](err); is {
		g.wrong = shown(broken.Text, maxText)
		return g, nil
	}
	step := StepOf(Link{attest.Link{Key: key, SHA256: record.Hash(b)}, r, info.Modified}, Unverified)
	g.step = &step
	return g, nil
}

// model puts together what was read of one model.
func (v *Viewer) model(name string, versions []string, m *viewed) ViewModel {
	out := ViewModel{Model: name, Releases: []Lineage{}}
	var live *Current
	if m.current != nil {
		g := v.seen[m.current.Key]
		if live = g.current; live != nil && live.Version == tag.None {
			live = nil // taken away by a stage tag: its places say so
		} else if live != nil {
			out.Live = live.Version
		} else if g.wrong != "" {
			out.Trouble = m.current.Key + " " + g.wrong
		}
	}
	for _, version := range versions {
		out.Releases = append(out.Releases, v.release(name, version, m.versions[version], live))
	}
	for _, it := range m.moves {
		if g := v.seen[it.Key]; g.step != nil && g.step.moved != nil {
			out.Pointer = append(out.Pointer, *g.step.moved)
		}
	}
	if live != nil && !slices.ContainsFunc(out.Releases, func(l Lineage) bool { return l.Live || l.State == StateUnread }) {
		out.Trouble = cmp.Or(out.Trouble, "its pointer names "+live.Version+", and none of the releases below is the one that it means")
	}
	return out
}

// release draws one version as far as its records were read.
func (v *Viewer) release(model, version string, items []bucket.Info, live *Current) Lineage {
	there := make(map[string]bool, len(items))
	var targets []Step
	for _, it := range items {
		there[it.Key] = true
		if g := v.seen[it.Key]; g.step != nil && g.step.Target != nil && len(targets) < maxTargets {
			targets = append(targets, *g.step)
		}
	}
	var steps []Step
	state, text := "", ""
	for _, name := range Stages() {
		k := key(model, version, name)
		g, read := v.seen[k]
		if !there[k] {
			break
		}
		if g.step == nil {
			if state, text = StateUnread, "its records are read with one of the next looks"; read {
				state, text = StateBroken, k+" "+g.wrong
			}
			break
		}
		steps = append(steps, *g.step)
	}
	if len(steps) == 0 && state == "" {
		state, text = StateBroken, key(model, version, Candidate)+" is not there, and other records are"
	}
	l := Draw(model, version, steps, targets, live)
	if state != "" && l.State == StateUnderWay {
		l.State, l.Text, l.Code = state, text, ""
	}
	return l
}
