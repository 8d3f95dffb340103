package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headway-run/headway/deploylane"
	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/readonly"
)

// What a page of releases may cost.
const (
	lanesKeep = 30 * time.Second // a store is looked at so often at most, however many people look at the page
	lanesFor  = 30 * time.Second // one look
	lanesWait = 5 * time.Second  // of whoever asks, for a look that is under way
	lanesMost = 16               // stores
)

// lanes is the page of releases: what the stores that `lanes` in headway.yaml names say. It has nothing to do with the loop: it is
// read when somebody looks, beside everything else, by requests of its own.
type lanes struct {
	open func(ctx context.Context, url string) (bucket.Bucket, error)

	mu    sync.Mutex
	known bool // a plan was read
	more  int  // stores beyond lanesMost
	list  []*shelf
	jobs  map[string]string // names in the plan, by work; of a plan that names lanes
}

// shelf is one lane's store and what was read of it last.
type shelf struct {
	url     string
	viewer  *deploylane.Viewer // whoever looks has it for himself
	looking chan struct{}      // closed when the look that is under way is over; nil: none is
	looked  time.Time          // when the last one was over; zero: there was none
	read    time.Time          // when the view was read
	view    *deploylane.View
	failed  string // why the last look brought nothing
}

// follow takes over which stores there are, and the names of the plan's jobs.
func (l *lanes) follow(p *plan.Plan) {
	if l == nil {
		return
	}
	urls, more := slices.Compact(slices.Sorted(slices.Values(p.Config.Lanes))), 0
	if more = len(urls) - lanesMost; more > 0 {
		urls = urls[:lanesMost]
	}
	var jobs map[string]string
	if len(urls) > 0 {
		jobs = make(map[string]string, len(p.Jobs))
		for i := range p.Jobs {
			jobs[string(p.Jobs[i].Work)] = p.Jobs[i].Name
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.list
	l.known, l.more, l.jobs, l.list = true, max(more, 0), jobs, make([]*shelf, len(urls))
	for i, url := range urls {
		l.list[i] = &shelf{url: url}
		for _, s := range was {
			if s.url == url {
				l.list[i] = s
			}
		}
	}
}

// look makes sure that every store was looked at lately, or is being looked at, and waits a little for the latter.
func (l *lanes) look(ctx context.Context) {
	l.mu.Lock()
	var busy []chan struct{}
	for _, s := range l.list {
		if s.looking == nil && (s.looked.IsZero() || time.Since(s.looked) >= lanesKeep) {
			s.looking = make(chan struct{})
			go l.refresh(context.WithoutCancel(ctx), s)
		}
		if s.looking != nil {
			busy = append(busy, s.looking)
		}
	}
	l.mu.Unlock()
	enough := time.NewTimer(lanesWait)
	defer enough.Stop()
	for _, c := range busy {
		select {
		case <-c:
		case <-enough.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// refresh is one look at one store.
func (l *lanes) refresh(ctx context.Context, s *shelf) {
	ctx, cancel := context.WithTimeout(ctx, lanesFor)
	defer cancel()
	view, err := l.view(ctx, s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.looked, s.failed = time.Now(), ""; err != nil {
		s.failed = runners.Sanitize([]byte(runners.Bound(err.Error(), 500)))
	} else {
		s.view, s.read = view, s.looked
	}
	close(s.looking)
	s.looking = nil
}

func (l *lanes) view(ctx context.Context, s *shelf) (*deploylane.View, error) {
	if s.viewer == nil {
		b, err := l.open(ctx, s.url)
		if err != nil {
			return nil, err
		}
		s.viewer = &deploylane.Viewer{Store: readonly.New(b)}
	}
	return s.viewer.Look(ctx)
}

// lanesDoc is /lanes.json.
type lanesDoc struct {
	FormatVersion string    `json:"format_version"`
	Lanes         []laneDoc `json:"lanes"`
	More          int       `json:"more,omitempty"` // stores that are not shown
}

// laneDoc is one store in it.
type laneDoc struct {
	Store string            `json:"store"`
	Error string            `json:"error,omitempty"` // why the last look brought nothing; models are of an earlier one, where there was one
	AgeS  float64           `json:"age_s"`           // since the models were read
	Jobs  map[string]string `json:"jobs,omitempty"`  // names in the plan that is followed, by work: those of candidates and seeds
	*deploylane.View
}

// doc is what is known now.
func (l *lanes) doc() lanesDoc {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := lanesDoc{FormatVersion: "1.0", Lanes: []laneDoc{}, More: l.more}
	for _, s := range l.list {
		d := laneDoc{Store: withoutSecrets(s.url), Error: s.failed, View: s.view}
		switch {
		case s.view != nil:
			d.AgeS = time.Since(s.read).Seconds()
			d.Jobs = l.named(s.view)
		case s.failed == "":
			d.Error = "it is being read for the first time: look again in a moment"
		}
		if d.View == nil {
			d.View = &deploylane.View{Models: []deploylane.ViewModel{}}
		}
		out.Lanes = append(out.Lanes, d)
	}
	return out
}

// named are the jobs of the plan that a view speaks of.
func (l *lanes) named(v *deploylane.View) map[string]string {
	out := map[string]string{}
	note := func(w *deploylane.Work) {
		if w != nil && l.jobs[w.Work] != "" {
			out[w.Work] = l.jobs[w.Work]
		}
	}
	for _, m := range v.Models {
		for _, r := range m.Releases {
			for _, s := range r.Steps {
				note(s.Candidate)
				note(s.Backtest)
				for i := range s.Seeds {
					note(&s.Seeds[i])
				}
			}
		}
	}
	return out
}

// serve answers with what draw makes of the newest look.
func (l *lanes) serve(kind string, draw func(*bytes.Buffer, lanesDoc) error) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if l == nil {
			respond(rw, http.StatusNotFound, "this dispatcher shows no lanes\n")
			return
		}
		l.mu.Lock()
		known, none := l.known, len(l.list) == 0
		l.mu.Unlock()
		switch {
		case !known:
			respond(rw, http.StatusServiceUnavailable, "no plan yet, so it is not known which lanes there are\n")
			return
		case none:
			respond(rw, http.StatusNotFound, plan.ConfigFile+" names no lanes\n")
			return
		}
		l.look(r.Context())
		var b bytes.Buffer
		if err := draw(&b, l.doc()); err != nil {
			respond(rw, http.StatusInternalServerError, "the releases could not be drawn\n")
			return
		}
		h := rw.Header()
		h.Set("Content-Type", kind)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", lanesPolicy())
		_, _ = b.WriteTo(rw) // whoever asked has gone
	}
}

// routes adds the page of each source.
func (l *lanes) routes(mux *http.ServeMux, part string) {
	mux.HandleFunc("GET /lanes"+part, l.serve("text/html; charset=utf-8", drawLanes))
	mux.HandleFunc("GET /lanes"+part+".json", l.serve("application/json", func(b *bytes.Buffer, d lanesDoc) error {
		return json.NewEncoder(b).Encode(d)
	}))
}

// newLanes opens stores with the keys that this program finds.
func newLanes(w *watcher) *lanes {
	return &lanes{open: func(ctx context.Context, url string) (bucket.Bucket, error) {
		b, _, err := (&project{env: w.env, root: w.state}).openURL(ctx, url, false)
		if err != nil {
			return nil, fmt.Errorf("%s", w.env.hidden.from(err.Error()))
		}
		return b, nil
	}}
}
