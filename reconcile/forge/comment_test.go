package forge_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/reconcile/forge"
)

func post(body string) forge.Post {
	return forge.Post{Marker: marker, Body: marker + "head=9f2c -->\n" + body, Head: head}
}

func (f *fake) post(t *testing.T, p forge.Post) forge.Said {
	t.Helper()
	said, err := f.client(t).Post(t.Context(), p)
	if err != nil {
		t.Fatalf("%s: %v", f.kind, err)
	}
	return said
}

// TestOneComment: one comment for each plan root, edited on each push; nothing is posted for an empty plan, unless
// something was said before. What others write under our marker is theirs.
func TestOneComment(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			f := newFake(t, kind)
			f.add(marker+"head=0000 -->\nan imitation by somebody else", 666)
			f.add("quoting: "+marker+"head=1 -->", myID)
			f.add("<!-- headway:plan root=team-b head=1 -->\nanother root", myID)
			f.add("<!-- headway:plan root=team-ab head=1 -->\none whose name is longer", myID)
			others := f.bodies()
			empty := post("### No changes")
			empty.Empty = true
			if said := f.post(t, empty); said.Done != forge.Nothing || len(f.bodies()) != len(others) {
				t.Errorf("an empty plan: %+v, %q", said, f.bodies())
			}
			is := func(p forge.Post, done forge.Done) {
				t.Helper()
				said := f.post(t, p)
				if want := append(others[:len(others):len(others)], p.Body); said.Done != done || cmp.Diff(want, f.bodies()) != "" {
					t.Errorf("%+v, want %s: %s", said, done, cmp.Diff(want, f.bodies()))
				}
			}
			is(post("### Plan: 1 to start"), forge.Created)
			is(post("### Plan: 1 to start"), forge.Unchanged)
			is(post("### Plan: 2 to start"), forge.Edited)
			is(empty, forge.Edited)
			is(empty, forge.Unchanged)
			if f.count("POST comments") != 1 || f.count("unknown") > 0 {
				t.Errorf("requests: %v", f.calls)
			}
		})
	}
}

// F6 of the cases: twenty pushes, each with another plan, are one comment, written once and edited with each push after the
// first; another root beside it has its own.
func TestTwentyPushesAreOneComment(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			f := newFake(t, kind)
			var last string
			for push := range 20 {
				p := post(fmt.Sprintf("### Plan: %d to start", push+1))
				want := forge.Edited
				if last = p.Body; push == 0 {
					want = forge.Created
				}
				if said := f.post(t, p); said.Done != want {
					t.Fatalf("push %d: %+v, want %s", push+1, said, want)
				}
			}
			if d := cmp.Diff([]string{last}, f.bodies()); d != "" {
				t.Errorf("comments (-want +got):\n%s", d)
			}
			if made, edits, gone := f.count("POST comments"), f.count("PATCH comment")+f.count("PUT comment"), f.count("DELETE"); made != 1 || edits != 19 || gone != 0 {
				t.Errorf("%d comments made, %d edits, %d removed; want 1, 19, none", made, edits, gone)
			}
			other := "<!-- headway:plan root=team-b "
			if said := f.post(t, forge.Post{Marker: other, Body: other + "head=9f2c -->\n### Plan", Head: head}); said.Done != forge.Created || len(f.bodies()) != 2 {
				t.Errorf("another root: %+v, %q", said, f.bodies())
			}
		})
	}
}

// TestManyComments: ours is found behind hundreds of others, whatever size the forge's pages have, and whether it knows
// pages at all.
func TestManyComments(t *testing.T) {
	for _, kind := range kinds() {
		for _, size := range []int{100, 30} {
			t.Run(fmt.Sprintf("%s %d", kind, size), func(t *testing.T) {
				f := newFake(t, kind)
				f.page = size
				for i := range 250 {
					f.add(fmt.Sprintf("comment %d", i), 5)
				}
				f.add(marker+"head=0 -->\r\nold\r\n", myID)
				for i := range 60 {
					f.add(fmt.Sprintf("later %d", i), 5)
				}
				if said := f.post(t, post("new")); said.Done != forge.Edited || len(f.bodies()) != 311 || f.bodies()[250] != post("new").Body {
					t.Errorf("%+v, %d comments", said, len(f.bodies()))
				}
				if got, least := f.count("GET comments"), map[bool]int{true: 1, false: 311 / size}[kind == forge.Gitea]; got < least || got > least+1 {
					t.Errorf("%d pages were read, want about %d", got, least)
				}
			})
		}
	}
}

// TestMoreCommentsThanAreRead: where ours may lie beyond what is read, none is made, and an answer without an end is
// not read to it.
func TestMoreCommentsThanAreRead(t *testing.T) {
	f := newFake(t, forge.GitHub)
	f.page = 2
	for i := range 2 * 101 {
		f.add(fmt.Sprint(i), 5)
	}
	_, err := f.client(t).Post(t.Context(), post("x"))
	if err == nil || !strings.Contains(err.Error(), "more than 200 comments") || f.count("POST comments") > 0 {
		t.Errorf("%v, %d posts", err, f.count("POST comments"))
	}
	f = newFake(t, forge.Gitea)
	f.before = func(w http.ResponseWriter, r *http.Request, what string) bool {
		if !strings.HasPrefix(what, "GET comments") {
			return false
		}
		_, _ = w.Write([]byte("[" + `{"id":1,"body":"`))
		for chunk := []byte(strings.Repeat("x", 1<<20)); ; {
			if _, err := w.Write(chunk); err != nil {
				return true
			}
		}
	}
	if _, err := f.client(t).Post(t.Context(), post("x")); err == nil || !strings.Contains(err.Error(), "longer than 8 MiB") {
		t.Errorf("an answer without an end: %v", err)
	}
}

// TestRacesAreTidied: two runs that found nothing and both made one leave one, the oldest, with the body of the last.
func TestRacesAreTidied(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			f := newFake(t, kind)
			both := make(chan struct{})
			arrived := 0
			f.before = func(_ http.ResponseWriter, _ *http.Request, what string) bool {
				if strings.HasPrefix(what, "POST comments") { // each has looked, and neither has posted
					f.mu.Lock()
					if arrived++; arrived == 2 {
						close(both)
					}
					f.mu.Unlock()
					<-both
				}
				return false
			}
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					if _, err := f.client(t).Post(t.Context(), post("the same plan")); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if got := f.bodies(); len(got) != 1 || got[0] != post("the same plan").Body {
				t.Errorf("comments: %q", got)
			}
			f.before = nil
			first := f.add(marker+"x -->\nfrom an older race", myID)
			f.add(marker+"x -->\nand another", myID)
			f.add(marker+"x -->\nnot ours", 666)
			said := f.post(t, post("newer"))
			if got := f.bodies(); said.Tidy != 2 || len(got) != 2 || got[0] != post("newer").Body || !strings.Contains(got[1], "not ours") {
				t.Errorf("%+v: %q (the first of the older ones was %d)", said, got, first)
			}
		})
	}
}

// TestTheHeadMoves: case 41 of the table of cases. A plan of a commit that is no longer the head is not posted, neither anew
// nor over what stands there.
func TestTheHeadMoves(t *testing.T) {
	for _, kind := range kinds() {
		for _, there := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", kind, there), func(t *testing.T) {
				f := newFake(t, kind)
				if there {
					f.add(marker+"head=2 -->\nthe plan of the newer head", myID)
				}
				want := f.bodies()
				f.before = func(_ http.ResponseWriter, _ *http.Request, what string) bool {
					if strings.HasPrefix(what, "GET comments") { // as late as can be
						f.mu.Lock()
						f.live = moved
						f.mu.Unlock()
					}
					return false
				}
				_, err := f.client(t).Post(t.Context(), post("of the old head"))
				m, ok := errors.AsType[*forge.Moved](err)
				if !ok || m.Planned != head || m.Live != moved || cmp.Diff(want, f.bodies()) != "" {
					t.Errorf("%v: %q", err, f.bodies())
				}
			})
		}
	}
}

// TestAnAnswerThatIsLost: the forge made the comment and its answer never came: it is looked for before another is made.
func TestAnAnswerThatIsLost(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			f := newFake(t, kind)
			f.before = func(w http.ResponseWriter, r *http.Request, what string) bool {
				if !strings.HasPrefix(what, "POST comments") || f.count("POST comments") > 1 {
					return false
				}
				f.add(post("made").Body, myID)
				w.WriteHeader(502)
				return true
			}
			said := f.post(t, post("made"))
			if said.Done != forge.Unchanged || len(f.bodies()) != 1 || f.count("POST comments") != 1 {
				t.Errorf("%+v: %q after %v", said, f.bodies(), f.calls)
			}
		})
	}
}

// TestABodyWithoutItsMarker would never be found again.
func TestABodyWithoutItsMarker(t *testing.T) {
	f := newFake(t, forge.Gitea)
	if _, err := f.client(t).Post(t.Context(), forge.Post{Marker: marker, Body: "plan", Head: head}); err == nil || len(f.bodies()) > 0 {
		t.Errorf("%v: %q", err, f.bodies())
	}
}

// TestStatuses: a mark on the commit, with the link of the run, in the words of each forge.
func TestStatuses(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			f := newFake(t, kind)
			c := f.client(t)
			for _, s := range []forge.State{forge.Success, forge.Failure, forge.Broken} {
				if err := c.Status(context.Background(), forge.Status{Commit: head, Context: "headway/plan (team-a)", State: s, Text: strings.Repeat("ä", 200)}); err != nil {
					t.Fatal(err)
				}
			}
			states := map[bool][]string{true: {"success", "failed", "failed"}, false: {"success", "failure", "error"}}[kind == forge.GitLab]
			for i, v := range f.statuses {
				name, link := v.Get("context")+v.Get("name"), v.Get("target_url")
				if v.Get("commit") != head || v.Get("state") != states[i] || name != "headway/plan (team-a)" || link != "https://ci.example.com/runs/1" || len([]rune(v.Get("description"))) != 140 {
					t.Errorf("status %d: %v", i, v)
				}
			}
			if len(f.statuses) != 3 {
				t.Errorf("%d statuses", len(f.statuses))
			}
			if err := c.Status(context.Background(), forge.Status{Commit: "main/../..", Context: "x"}); err == nil {
				t.Error("a status of no commit")
			}
		})
	}
	f := newFake(t, forge.GitLab)
	f.before = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		answer(w, 400, map[string]any{"message": "Cannot transition status via :succeed from :success (Reason(s): Status cannot transition via \"succeed\")"})
		return true
	}
	if err := f.client(t).Status(t.Context(), forge.Status{Commit: head, Context: "x", State: forge.Success}); err != nil {
		t.Errorf("a status that stands there already: %v", err)
	}
	if err := f.client(t).Status(t.Context(), forge.Status{Commit: head, Context: "x", State: forge.Failure}); err == nil {
		t.Error("a status that could not be changed")
	}
}
