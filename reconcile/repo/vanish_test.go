package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
)

// TestVanishes: what goes between the listing and the reading is as if it had never been there.
func TestVanishes(t *testing.T) {
	for _, git := range []bool{false, true} {
		dir := t.TempDir()
		if git {
			gitCLI(t, dir, "init", "-q")
		}
		write(t, dir, "headway.yaml", "headway: v1", "stays", "1", "d/stays", "1")
		want := must(t, open(t, dir).Hash)
		write(t, dir, "goes", "2", "d/goes", "2", "all/of/it/goes", "2")
		if err := os.Symlink("stays", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		w := open(t, dir)
		for _, name := range []string{"goes", "d/goes", "all", "link"} {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		list, err := w.Entries("")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range list {
			names = append(names, e.Name)
		}
		if diff := cmp.Diff([]string{"d", "headway.yaml", "stays"}, names); diff != "" {
			t.Errorf("git %v (-want +got):\n%s", git, diff)
		}
		if got := must(t, w.Hash); got != want {
			t.Errorf("hash %s, want %s", got, want)
		}
		if _, err := w.Entries("all/of"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a folder that went: %v", err)
		}
		if git {
			if changed := mustGet(t, w.Changes); !slices.Equal(changed, []string{"d/stays", "headway.yaml", "stays"}) {
				t.Errorf("changes %q", changed)
			}
		}
	}
}

// TestReplaced: a plan file that is removed and written again is read, not taken for gone.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	gitCLI(t, dir, "init", "-q")
	write(t, dir, ".gitignore", "data\n", "headway.yaml", "headway: v1", "plans/a.yaml", "jobs: {}", "data", "1")
	want := must(t, open(t, dir).Hash)
	w := open(t, dir)
	missing := []string{"headway.yaml", "plans/a.yaml"}
	lose := func() {
		for _, name := range missing {
			if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, "data")+filepath.Base(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	looks := 0
	w.pause = func() {
		looks++
		for _, name := range missing {
			_ = os.Rename(filepath.Join(dir, "data")+filepath.Base(name), filepath.Join(dir, name)) // it may be back
		}
	}
	lose()
	if got := must(t, w.Hash); got != want || looks != 1 {
		t.Errorf("hash %s after %d looks, want %s", got, looks, want)
	}
	lose()
	if b, err := w.Read("headway.yaml", 100); err != nil || string(b) != "headway: v1" || looks != 2 {
		t.Errorf("%q, %v after %d looks", b, err, looks)
	}
	if err := os.Remove(filepath.Join(dir, "headway.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Read("headway.yaml", 100); !errors.Is(err, fs.ErrNotExist) || looks != 3 {
		t.Errorf("a file that stays away: %v after %d looks", err, looks)
	}
}

// TestOwnFolder: headway's own folder is no part of a work tree, ignored or not, but for what somebody tracks in it.
func TestOwnFolder(t *testing.T) {
	dir := t.TempDir()
	gitCLI(t, dir, "init", "-q")
	write(t, dir, "headway.yaml", "headway: v1", ".headway/tracked", "1", "deep/.headway/x", "1")
	gitCLI(t, dir, "add", "-A")
	gitCLI(t, dir, "commit", "-q", "-m", "a")
	write(t, dir, ".headway/store/x", "2", ".headway/y", "2", ".headway/scratch/1/z", "2")
	w := open(t, dir)
	if changed := mustGet(t, w.Changes); len(changed) > 0 {
		t.Errorf("changes %q", changed)
	}
	if err := w.absent(".headway/scratch"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("headway's own folder was walked: %v", err)
	}
	if list, err := w.Entries(".headway"); err != nil || len(list) != 1 || list[0].Name != "tracked" {
		t.Errorf("%+v %v", list, err)
	}
	gitCLI(t, dir, "rm", "-rq", "--cached", ".headway")
	gitCLI(t, dir, "commit", "-q", "-m", "b")
	w = open(t, dir)
	if dirty := mustGet(t, w.Dirty); dirty {
		t.Error("headway's own folder makes the work tree dirty")
	}
	if _, err := w.Entries("deep/.headway"); err != nil {
		t.Error("another folder of that name is not headway's: ", err)
	}
}

// TestBesideWriters: files and folders that come and go all the time make no reading fail.
func TestBesideWriters(t *testing.T) {
	dir := t.TempDir()
	gitCLI(t, dir, "init", "-q")
	write(t, dir, "headway.yaml", "headway: v1", ".gitignore", "*.out\n")
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				at := filepath.Join(dir, fmt.Sprintf("run%d-%d", i, n), "deep")
				if err := errors.Join(os.MkdirAll(at, 0o777), os.WriteFile(filepath.Join(at, ".gitignore"), nil, 0o666),
					os.WriteFile(filepath.Join(at, "y"), nil, 0o666), os.RemoveAll(filepath.Dir(at))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 300 {
		w, err := Folder(dir)
		if err != nil {
			t.Error(err)
			break
		}
		w.pause = func() {}
		list, err := w.Entries("")
		if err != nil || !slices.ContainsFunc(list, func(e plan.Entry) bool { return e.Name == "headway.yaml" }) {
			t.Errorf("%v %v", list, err)
			break
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
}

func mustGet[T any](t *testing.T, f func() (T, error)) T {
	t.Helper()
	v, err := f()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAFetchThatDoesNotMoveIsLoud: a branch that is elsewhere by the listing, and where it was by the fetch right after it, is no
// quiet "already up to date": it is said by name, what is known stays, and the next poll compares afresh.
func TestAFetchThatDoesNotMoveIsLoud(t *testing.T) {
	o := newOrigin(t)
	a := o.commit("main", "a", files("x", "1"))
	b := o.commit("main", "b", files("x", "2"))
	o.point("main", a)
	w := serve(t, o)
	var flip atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, rq *http.Request) {
		if strings.HasSuffix(rq.URL.Path, "/info/refs") && flip.CompareAndSwap(true, false) {
			o.point("main", b)
			defer o.point("main", a)
		}
		if err := w.answer(o, rw, rq); err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	r := watch(t, Options{Remote: s.URL + "/team/plans.git", Branch: "main"})
	expect(t, r, "advanced >a")
	flip.Store(true)
	got := expect(t, r, "unreachable a FetchDidNotMove").(Unreachable)
	if !strings.Contains(got.Err.Error(), b) || !strings.Contains(got.Err.Error(), "the fetch brought nothing") {
		t.Errorf("error: %v", got.Err)
	}
	readX(t, r, got.Last.Hash, "1")
	expect(t, r, "unchanged a")
}
