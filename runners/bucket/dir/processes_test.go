package dir_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/buckettest"
	"github.com/headway-run/headway/runners/bucket/dir"
)

// The test binary is also the other process: "verb root link".
const childEnv = "HEADWAY_DIR_TEST_CHILD"

func TestMain(m *testing.M) {
	if how := strings.Fields(os.Getenv(childEnv)); len(how) == 3 {
		if err := child(how[0], how[1], how[2] == "nolink"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child reports each acknowledged deed as a line on stdout, after the store has acknowledged it.
func child(verb, root string, noLink bool) error {
	ctx := context.Background()
	b, err := dir.Open(root, dir.Options{NoSync: true, NoLink: noLink})
	if err != nil {
		return err
	}
	switch verb {
	case "count":
		for range 60 {
			if _, err := buckettest.Count(ctx, b, "counter", 1); err != nil {
				return err
			}
			fmt.Println("counted")
		}
	case "create":
		for i := range 150 {
			_, err := b.Put(ctx, fmt.Sprintf("created/%03d", i), strings.NewReader(strconv.Itoa(os.Getpid())), bucket.IfAbsent())
			if err == nil {
				fmt.Println("created", i)
			} else if !bucket.Is(err, bucket.Condition) {
				return err
			}
		}
	case "forever":
		for i := 0; ; i++ {
			if _, err := buckettest.Count(ctx, b, "counter", 1); err != nil {
				return err
			}
			if _, err := b.Put(ctx, "big", strings.NewReader(strings.Repeat(string(rune('a'+i%26)), 50_000+i)), bucket.Always()); err != nil {
				return err
			}
			fmt.Println("counted")
		}
	case "full":
		limit := syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			return err
		}
		_, err := b.Put(ctx, "k", strings.NewReader(strings.Repeat("x", 200<<10)), bucket.Always())
		fmt.Println(bucket.CodeOf(err))
	}
	return nil
}

// start runs a child and returns its lines as they come.
func start(t *testing.T, verb, root string, noLink bool) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	link := "link"
	if noLink {
		link = "nolink"
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{verb, root, link}, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// lines runs four children at once and returns all that they said.
func lines(t *testing.T, verb, root string, noLink bool) []string {
	t.Helper()
	var mu sync.Mutex
	var all []string
	var wg sync.WaitGroup
	for range 4 {
		cmd, out := start(t, verb, root, noLink)
		wg.Go(func() {
			for out.Scan() {
				mu.Lock()
				all = append(all, out.Text())
				mu.Unlock()
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s: %v", verb, err)
			}
		})
	}
	wg.Wait()
	return all
}

func total(t *testing.T, b bucket.Bucket) int {
	t.Helper()
	o, err := b.Get(t.Context(), "counter", bucket.Range{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Body.Close() }()
	var n int
	if _, err := fmt.Fscan(o.Body, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFourProcesses(t *testing.T) {
	for _, noLink := range []bool{false, true} {
		t.Run(fmt.Sprintf("no link %v", noLink), func(t *testing.T) {
			root := t.TempDir()
			b := open(t, root, dir.Options{Create: true, NoSync: true})
			if _, err := b.Put(t.Context(), "counter", strings.NewReader("0"), bucket.IfAbsent()); err != nil {
				t.Fatal(err)
			}
			acknowledged := len(lines(t, "count", root, noLink))
			if n := total(t, b); n != 240 || acknowledged != 240 {
				t.Errorf("%d increments acknowledged, the counter says %d, want 240", acknowledged, n)
			}
			winners := map[string]int{}
			for _, l := range lines(t, "create", root, noLink) {
				winners[l]++
			}
			for i := range 150 {
				if n := winners[fmt.Sprint("created ", i)]; n != 1 {
					t.Errorf("key %d has %d creators, want 1", i, n)
				}
			}
		})
	}
}

// TestKilledInTheMiddle kills writers at odd moments, again and again: what was acknowledged is there, nobody has ever seen
// half an object, and no lock outlives its holder.
func TestKilledInTheMiddle(t *testing.T) {
	root := t.TempDir()
	b := open(t, root, dir.Options{Create: true, NoSync: true})
	for key, body := range map[string]string{"counter": "0", "big": "a"} {
		if _, err := b.Put(t.Context(), key, strings.NewReader(body), bucket.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	acknowledged := 0
	for round := range 12 {
		first, out := start(t, "forever", root, round%2 == 1)
		second, _ := start(t, "forever", root, round%2 == 1)
		for range 3 + round { // after so many deeds of the first, both die wherever they are
			if !out.Scan() {
				t.Fatal("the child ended by itself")
			}
			acknowledged++
		}
		for _, c := range []*exec.Cmd{first, second} {
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
		}
		o, err := b.Get(t.Context(), "big", bucket.Range{})
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(o.Body)
		_ = o.Body.Close()
		if err != nil || int64(len(data)) != o.Size || strings.Count(string(data), string(data[:1])) != len(data) {
			t.Fatalf("round %d: half an object: %d of %d bytes, %v", round, len(data), o.Size, err)
		}
	}
	if n := total(t, b); n < acknowledged {
		t.Errorf("%d increments were acknowledged, the counter says %d", acknowledged, n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := buckettest.Count(ctx, b, "counter", 1); err != nil {
		t.Errorf("after the kills a lock is still taken: %v", err)
	}
}

// TestDiskFull has a real write fail in the middle of an object, by the one limit that needs no rights.
func TestDiskFull(t *testing.T) {
	root := t.TempDir()
	b := open(t, root, dir.Options{Create: true})
	if _, err := b.Put(t.Context(), "k", strings.NewReader("old"), bucket.Always()); err != nil {
		t.Fatal(err)
	}
	cmd, out := start(t, "full", root, false)
	if !out.Scan() || out.Text() != "Full" {
		t.Errorf("a write that found no room: %q, want Full", out.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	o, err := b.Get(t.Context(), "k", bucket.Range{})
	if err != nil || o.Size != 3 {
		t.Errorf("the old object: %+v, %v", o, err)
	}
	if left, err := os.ReadDir(filepath.Join(root, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
