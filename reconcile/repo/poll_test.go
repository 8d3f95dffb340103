package repo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// both runs a test against the repository read where it lies, and against the same one over HTTP.
func both(t *testing.T, f func(t *testing.T, o *origin, r *Repo)) {
	t.Run("local", func(t *testing.T) {
		o := newOrigin(t)
		f(t, o, watch(t, Options{Remote: o.dir, Branch: "main"}))
	})
	t.Run("http", func(t *testing.T) {
		o := newOrigin(t)
		f(t, o, watch(t, Options{Remote: serve(t, o).address(), Branch: "main"}))
	})
}

func shape(o Outcome) string {
	short := func(c Commit) string { return c.Subject() }
	switch o := o.(type) {
	case Unchanged:
		return "unchanged " + short(o.Head)
	case Advanced:
		return "advanced " + short(o.Old) + ">" + short(o.New)
	case Rewritten:
		return "rewritten " + short(o.Old) + ">" + short(o.New)
	case WentBack:
		return "back " + short(o.Old) + ">" + short(o.New)
	case BranchGone:
		return "gone " + short(o.Last)
	case Unreachable:
		return "unreachable " + short(o.Last) + " " + string(o.Err.Class)
	}
	return fmt.Sprintf("%T", o)
}

func expect(t *testing.T, r *Repo, want string) Outcome {
	t.Helper()
	o := r.Poll(t.Context())
	if got := shape(o); got != want {
		t.Fatalf("poll: got %q, want %q (%+v)", got, want, o)
	}
	return o
}

func TestEveryOutcome(t *testing.T) {
	both(t, func(t *testing.T, o *origin, r *Repo) {
		gone := expect(t, r, "gone ").(BranchGone)
		if gone.Err.Class != BranchNotFound || !strings.Contains(gone.Err.Error(), "no commit yet") && !strings.Contains(gone.Err.Error(), "no branch with a commit") {
			t.Errorf("empty repository: %v", gone.Err)
		}
		a := o.commit("main", "a", files("x", "1"))
		expect(t, r, "advanced >a")
		expect(t, r, "unchanged a")
		b := o.commit("main", "b", files("x", "2"))
		o.commit("main", "c\n\nlong text", files("x", "3"))
		expect(t, r, "advanced a>c")
		o.point("main", b)
		expect(t, r, "back c>b")
		o.point("main", o.commitTree(o.tree(files("x", "9")), "other", a))
		expect(t, r, "rewritten b>other")
		o.point("main", o.commitTree(o.tree(files("x", "9")), "orphan"))
		expect(t, r, "rewritten other>orphan")
		o.commit("main", "d", files("x", "4"))
		expect(t, r, "advanced orphan>d")
		o.commit("maine", "m", files("x", "4"))
		o.drop("main")
		gone = expect(t, r, "gone d").(BranchGone)
		if !strings.Contains(gone.Err.Error(), `did you mean "maine"?`) {
			t.Errorf("branch gone: %v", gone.Err)
		}
		if tr, err := r.Tree(gone.Last.Hash); err != nil {
			t.Error(err)
		} else if b, err := tr.Read("x", 10); err != nil || string(b) != "4" {
			t.Errorf("last good commit: %q, %v", b, err)
		}
		o.commit("main", "e", files("x", "5"))
		expect(t, r, "rewritten d>e")
	})
}

func TestCommitFields(t *testing.T) {
	both(t, func(t *testing.T, o *origin, r *Repo) {
		a := o.commit("main", "a", files("x", "1"))
		b := o.commit("main", "subject\n\nbody\n", files("x", "2"))
		head, err := r.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		when := time.Unix(1_700_000_002, 0).UTC()
		want := Commit{Hash: b, Tree: o.tree(files("x", "2")).String(), Parents: []string{a}, Message: "subject\n\nbody\n",
			Author: "Ann", Email: "ann@example.com", Time: when, Committed: when}
		if d := cmp.Diff(want, head); d != "" {
			t.Errorf("head (-want +got):\n%s", d)
		}
		if c, err := r.Commit(a); err != nil || c.Subject() != "a" {
			t.Errorf("commit a: %+v, %v", c, err)
		}
		if _, err := r.Commit(strings.Repeat("1", 40)); class(err) != MissingObject {
			t.Errorf("absent commit: %v", err)
		}
		if _, err := r.Commit(want.Tree); class(err) != Corrupt {
			t.Errorf("a tree as commit: %v", err)
		}
		if _, err := r.Commit("HEAD"); err == nil || !strings.Contains(err.Error(), "40 hex digits") {
			t.Errorf("HEAD as commit: %v", err)
		}
	})
}

func TestQuietPollFetchesNothing(t *testing.T) {
	o := newOrigin(t)
	w := serve(t, o)
	o.commit("main", "a", files("x", "1"))
	r := watch(t, Options{Remote: w.address(), Branch: "main"})
	expect(t, r, "advanced >a")
	lists, packs := w.lists.Load(), w.packs.Load()
	for range 5 {
		expect(t, r, "unchanged a")
	}
	if got := w.lists.Load() - lists; got != 5 {
		t.Errorf("five quiet polls asked %d times for refs, want 5", got)
	}
	if got := w.packs.Load() - packs; got != 0 {
		t.Errorf("five quiet polls fetched %d packs", got)
	}
	got := r.Counters()
	got.Bytes = min(got.Bytes, 1)
	if d := cmp.Diff(Counters{Polls: 6, Lists: 6, Fetches: 1, Bytes: 1}, got); d != "" {
		t.Errorf("counters (-want +got):\n%s", d)
	}
	local := watch(t, Options{Remote: "file://" + o.dir})
	expect(t, local, "advanced >a")
	expect(t, local, "unchanged a")
	if d := cmp.Diff(Counters{Polls: 2}, local.Counters()); d != "" {
		t.Errorf("counters of a local repository (-want +got):\n%s", d)
	}
	if local.Branch() != "main" {
		t.Errorf("HEAD names %q", local.Branch())
	}
}

func TestDefaultBranchOverHTTP(t *testing.T) {
	o := newOrigin(t)
	o.head("trunk")
	o.commit("trunk", "a", files("x", "1"))
	o.commit("main", "b", files("x", "1"))
	r := watch(t, Options{Remote: serve(t, o).address()})
	expect(t, r, "advanced >a")
	if r.Branch() != "trunk" {
		t.Errorf("got branch %q", r.Branch())
	}
}

func TestRemoteAway(t *testing.T) {
	o := newOrigin(t)
	w := serve(t, o)
	o.commit("main", "a", files("x", "1"))
	cache := t.TempDir()
	r := watch(t, Options{Remote: w.address(), Branch: "main", Cache: cache})
	expect(t, r, "advanced >a")
	w.down.Store(true)
	first := expect(t, r, "unreachable a Offline").(Unreachable)
	second := expect(t, r, "unreachable a Offline").(Unreachable)
	if first.Since.IsZero() || !first.Since.Equal(second.Since) {
		t.Errorf("since: %v, then %v", first.Since, second.Since)
	}
	if !strings.Contains(first.Err.Error(), "503") || !strings.Contains(first.Err.Error(), "next poll") {
		t.Errorf("error: %v", first.Err)
	}
	readX(t, r, first.Last.Hash, "1")
	// Another process with the same cache reads the last good commit while the remote is still away.
	again := watch(t, Options{Remote: w.address(), Branch: "main", Cache: cache})
	head, err := again.Head(t.Context())
	if err != nil || head.Subject() != "a" {
		t.Fatalf("head from the cache: %+v, %v", head, err)
	}
	readX(t, again, head.Hash, "1")
	expect(t, again, "unreachable a Offline")
	w.down.Store(false)
	expect(t, r, "unchanged a")
	w.down.Store(true)
	if third := expect(t, r, "unreachable a Offline").(Unreachable); !third.Since.After(first.Since) {
		t.Errorf("a new silence began at %v, the old one at %v", third.Since, first.Since)
	}
	w.Close()
	expect(t, r, "unreachable a Offline")
}

func readX(t *testing.T, r *Repo, commit, want string) {
	t.Helper()
	tr, err := r.Tree(commit)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := tr.Read("x", 100); err != nil || string(b) != want {
		t.Errorf("x: %q, %v; want %q", b, err, want)
	}
}

func TestCutFetch(t *testing.T) {
	o := newOrigin(t)
	w := serve(t, o)
	o.commit("main", "a", files("x", "1"))
	r := watch(t, Options{Remote: w.address(), Branch: "main"})
	expect(t, r, "advanced >a")
	o.commit("main", "b", files("x", "2", "y", strings.Repeat("noise ", 20_000)))
	for _, n := range []int64{1, 20, 60, 150} {
		w.cut.Store(n)
		expect(t, r, "unreachable a Offline")
		readX(t, r, r.last().Hash, "1")
	}
	w.cut.Store(0)
	b := expect(t, r, "advanced a>b").(Advanced)
	readX(t, r, b.New.Hash, "2")
}

func TestStalledFetchKeepsTheDeadline(t *testing.T) {
	o := newOrigin(t)
	w := serve(t, o)
	o.commit("main", "a", files("x", "1"))
	w.stall = make(chan struct{})
	t.Cleanup(func() { close(w.stall) })
	r := watch(t, Options{Remote: w.address(), Branch: "main", Timeout: 300 * time.Millisecond})
	polled := make(chan Outcome, 1)
	go func() { polled <- r.Poll(t.Context()) }()
	select { // the stall lasts until the test is over: that the poll returns at all is its deadline's doing
	case o := <-polled:
		if got, away := o.(Unreachable); !away || got.Err.Class != Offline || !strings.Contains(got.Err.Error(), "no answer in time") {
			t.Errorf("poll: %s (%+v)", shape(o), o)
		}
	case <-time.After(time.Minute):
		t.Fatal("a poll with a deadline of 0.3 s does not return while the server stalls")
	}
}

// TestFetchTooLarge is case 38: a pack above the limit is refused, and no more of it is read than what had gone out by then: what the
// connection holds, and nothing like the whole.
func TestFetchTooLarge(t *testing.T) {
	o := newOrigin(t)
	w := serve(t, o)
	big := make([]byte, 1<<20) // of which no byte can be left out
	if _, err := rand.NewChaCha8([32]byte{1}).Read(big); err != nil {
		t.Fatal(err)
	}
	o.commit("main", "a", files("x", string(big)))
	r := watch(t, Options{Remote: w.address(), Branch: "main", MaxPack: 10_000})
	got := expect(t, r, "unreachable  TooLarge").(Unreachable)
	if !strings.Contains(got.Err.Error(), "10000 bytes") {
		t.Errorf("error: %v", got.Err)
	}
	w.Close() // once it has answered, or could not
	if sent := w.sent.Load(); sent <= 10_000 || sent > int64(len(big))/2 {
		t.Errorf("%d bytes of a pack of more than %d were sent", sent, len(big))
	}
}

func TestTokens(t *testing.T) {
	o := newOrigin(t)
	w := serve(t, o)
	o.commit("main", "a", files("x", "1"))
	secret := "s3cret-one"
	w.token.Store(&secret)
	now := "s3cret-one"
	r := watch(t, Options{Remote: w.address(), Branch: "main", Auth: Auth{Token: func() (string, error) { return now, nil }}})
	expect(t, r, "advanced >a")
	renewed := "s3cret-two"
	w.token.Store(&renewed)
	got := expect(t, r, "unreachable a AuthFailed").(Unreachable)
	if strings.Contains(got.Err.Error(), "s3cret") {
		t.Errorf("the error shows the token: %v", got.Err)
	}
	now = renewed
	expect(t, r, "unchanged a")

	inURL := watch(t, Options{Remote: strings.Replace(w.address(), "http://", "http://bob:s3cret-two@", 1), Branch: "main"})
	expect(t, inURL, "advanced >a")
	wrong := watch(t, Options{Remote: strings.Replace(w.address(), "http://", "http://s3cret-three@", 1), Branch: "main"})
	got = expect(t, wrong, "unreachable  AuthFailed").(Unreachable)
	if strings.Contains(got.Err.Error()+wrong.Remote(), "s3cret") {
		t.Errorf("the error shows the token: %v", got.Err)
	}
	broken := watch(t, Options{Remote: w.address(), Branch: "main", Auth: Auth{Token: func() (string, error) { return "", os.ErrNotExist }}})
	expect(t, broken, "unreachable  AuthFailed")
	plain := watch(t, Options{Remote: "http://git.example.com/x.git", Branch: "main", Auth: Auth{Token: func() (string, error) { return now, nil }}})
	if got := expect(t, plain, "unreachable  NotAllowed").(Unreachable); !strings.Contains(got.Err.Error(), "use https") {
		t.Errorf("error: %v", got.Err)
	}
}

func TestRemoteNotThere(t *testing.T) {
	w := serve(t, newOrigin(t))
	r := watch(t, Options{Remote: w.URL + "/team/other.git", Branch: "main"})
	if got := expect(t, r, "unreachable  RemoteNotFound").(Unreachable); !strings.Contains(got.Err.Error(), "/team/other.git: no such repository") {
		t.Errorf("error: %v", got.Err)
	}
}

func TestOpenRefusals(t *testing.T) {
	dir := t.TempDir()
	o := newOrigin(t)
	work := t.TempDir()
	gitCLI(t, work, "init", "-q")
	sub := filepath.Join(work, "sub")
	write(t, sub, "x", "1")
	sha256 := t.TempDir()
	gitCLI(t, sha256, "init", "-q", "--object-format=sha256")
	for name, c := range map[string]struct {
		o     Options
		class Class
		text  string
	}{
		"missing":      {Options{Remote: filepath.Join(dir, "no")}, RemoteNotFound, "there is no such folder"},
		"plain folder": {Options{Remote: dir}, NotRepository, "git init"},
		"inside one":   {Options{Remote: sub}, NotRepository, work},
		"sha256":       {Options{Remote: sha256}, Unsupported, "sha256"},
		"scheme":       {Options{Remote: "ext::sh -c true://x"}, Unsupported, ""},
		"git scheme":   {Options{Remote: "git://host/x"}, Unsupported, "git://"},
		"file host":    {Options{Remote: "file://host/x"}, Unsupported, "file:///path"},
		"no cache":     {Options{Remote: "https://host.invalid/x"}, Unsupported, "cache folder"},
		"star":         {Options{Remote: o.dir, Branch: "*"}, BranchNotFound, "not one that Git allows"},
		"up":           {Options{Remote: o.dir, Branch: "a/../b"}, BranchNotFound, "not one that Git allows"},
		"full ref":     {Options{Remote: o.dir, Branch: "refs/heads/main"}, BranchNotFound, "short name"},
	} {
		r, err := Open(c.o)
		if err == nil {
			_ = r.Close()
		}
		if class(err) != c.class || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want %s with %q", name, err, c.class, c.text)
		}
	}
}

func TestDamagedCacheIsMadeAnew(t *testing.T) {
	o := newOrigin(t)
	w := serve(t, o)
	o.commit("main", "a", files("x", "1"))
	for name, damage := range map[string]func(t *testing.T, store string){
		"half-written pack": func(t *testing.T, store string) { truncate(t, store, "*.pack", 40) },
		"half-written idx":  func(t *testing.T, store string) { truncate(t, store, "*.idx", 100) },
		"pack gone":         func(t *testing.T, store string) { removeAll(t, filepath.Join(store, "objects", "pack")) },
		"ref cut":           func(t *testing.T, store string) { empty(t, filepath.Join(store, "refs", "watch", "main")) },
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			r := watch(t, Options{Remote: w.address(), Branch: "main", Cache: cache})
			expect(t, r, "advanced >a")
			stores, err := filepath.Glob(filepath.Join(cache, "*.git"))
			if err != nil || len(stores) != 1 {
				t.Fatalf("stores %v, %v", stores, err)
			}
			damage(t, stores[0])
			again := watch(t, Options{Remote: w.address(), Branch: "main", Cache: cache})
			got := expect(t, again, "advanced >a").(Advanced)
			readX(t, again, got.New.Hash, "1")
		})
	}
}

func truncate(t *testing.T, store, glob string, size int64) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(store, "objects", "pack", glob))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", glob, found, err)
	}
	if err := os.Chmod(found[0], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(found[0], size); err != nil {
		t.Fatal(err)
	}
}

func removeAll(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

func empty(t *testing.T, file string) {
	t.Helper()
	if err := os.Truncate(file, 0); err != nil {
		t.Fatal(err)
	}
}

func TestRelate(t *testing.T) {
	both(t, func(t *testing.T, o *origin, r *Repo) {
		a := o.commit("main", "a", files("x", "1"))
		b := o.commit("main", "b", files("x", "2"))
		side := o.commitTree(o.tree(files("x", "s")), "side", a)
		o.point("main", o.commitTree(o.tree(files("x", "m")), "merge", b, side))
		m := expect(t, r, "advanced >merge").(Advanced).New.Hash
		for _, c := range []struct {
			base, commit string
			want         Relation
		}{
			{a, a, Same}, {a, m, Ahead}, {m, a, Behind}, {b, m, Ahead}, {side, m, Ahead}, {m, side, Behind}, {b, side, Diverged}, {side, b, Diverged},
			{strings.Repeat("12", 20), m, Diverged},
		} {
			if got, err := r.Relate(t.Context(), c.base, c.commit); err != nil || got != c.want {
				t.Errorf("%.7s to %.7s: got %v, %v; want %v", c.base, c.commit, got, err, c.want)
			}
		}
		if _, err := r.Relate(t.Context(), m, strings.Repeat("12", 20)); class(err) != MissingObject {
			t.Errorf("absent commit: %v", err)
		}
		if _, err := r.Relate(t.Context(), "x", m); err == nil {
			t.Error("a base that is no hash was accepted")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Relate(ctx, a, m); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestClosed(t *testing.T) {
	o := newOrigin(t)
	a := o.commit("main", "a", files("x", "1"))
	r, err := Open(Options{Remote: o.dir, Branch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := r.Tree(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Read("x", 10); !errors.Is(err, errClosed) {
		t.Errorf("read after close: %v", err)
	}
	if got, ok := r.Poll(t.Context()).(Unreachable); !ok {
		t.Errorf("poll after close: %+v", got)
	}
}

// TestReadersDuringPolls: many goroutines read old and new commits while one pushes and polls. Worth the most with -race.
func TestReadersDuringPolls(t *testing.T) {
	both(t, func(t *testing.T, o *origin, r *Repo) {
		first := o.commit("main", "0", files("x", "0", "d/y", "0"))
		expect(t, r, "advanced >0")
		stop := make(chan struct{})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					at := first
					if i%2 == 0 {
						at = r.last().Hash
					}
					tr, err := r.Tree(at)
					if err != nil {
						t.Error(err)
						return
					}
					want, err := tr.Read("x", 10)
					if err != nil {
						t.Error(err)
						return
					}
					if got, err := tr.Read("d/y", 10); err != nil || string(got) != string(want) {
						t.Errorf("x is %q, d/y is %q, %v", want, got, err)
						return
					}
				}
			})
		}
		for i := 1; i <= 8; i++ {
			n := fmt.Sprint(i)
			o.commit("main", n, files("x", n, "d/y", n))
			expect(t, r, fmt.Sprintf("advanced %d>%d", i-1, i))
		}
		close(stop)
		all.Wait()
	})
}
