//go:build linux && chaos

package server_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-run/headway/proof/chaos/kin"
	"github.com/headway-run/headway/proof/chaos/server"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/open"
)

func start(t *testing.T) (*kin.Family, *server.Server) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "s3server")
	c := exec.Command("go", "build", "-buildvcs=false", "-o", binary, ".")
	c.Dir, c.Env = "../../../.ci/s3server", append(os.Environ(), "GOFLAGS=-mod=readonly")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	family, err := kin.New()
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(family, binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return family, s
}

// client is the product's own, straight at the server.
func client(t *testing.T, s *server.Server, prefix string) bucket.Bucket {
	t.Helper()
	env := s.Environ()
	b, err := open.URL(t.Context(), s.URL(s.Addr(), prefix), open.Options{Getenv: func(name string) string {
		i := slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		if i < 0 {
			return ""
		}
		return strings.TrimPrefix(env[i], name+"=")
	}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(t *testing.T, b bucket.Bucket, key string) (string, error) {
	t.Helper()
	o, err := b.Get(t.Context(), key, bucket.Range{})
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(o.Body)
	if cerr := o.Body.Close(); err == nil {
		err = cerr
	}
	return string(body), err
}

// What was acknowledged before SIGKILL is there after the next start, under the same address, and in the server's files at
// any time; nothing answers meanwhile, and no process is left.
func TestKilledAndStartedAgain(t *testing.T) {
	family, s := start(t)
	b := client(t, s, "one")
	if _, err := b.Put(t.Context(), "work/a", strings.NewReader("first"), bucket.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if got, found := s.Stored("one", "work/a"); !found || string(got) != "first" {
		t.Errorf("the files of the dead server have %q, %v", got, found)
	}
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		t.Error("a killed server answers", conn.Close())
	}
	if alive, err := family.Look(); err != nil || len(alive) > 0 {
		t.Errorf("left: %v, %v", alive, err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, b, "work/a"); err != nil || got != "first" {
		t.Errorf("after the start: %q, %v", got, err)
	}
	if _, err := b.Put(t.Context(), "work/a", strings.NewReader("second"), bucket.IfAbsent()); !bucket.Is(err, bucket.Condition) {
		t.Errorf("created a second time: %v", err)
	}
}

// What is put or forgotten behind everybody's back is what clients find.
func TestBehindTheServersBack(t *testing.T) {
	_, s := start(t)
	b, other := client(t, s, "one"), client(t, s, "two")
	if err := s.Put("one", "deep/key", []byte("planted")); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, b, "deep/key"); err != nil || got != "planted" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := other.Put(t.Context(), "key", bytes.NewReader([]byte("of another round")), bucket.Always()); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget("one"); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, b, "deep/key"); !bucket.Is(err, bucket.NotFound) {
		t.Errorf("a forgotten key: %v", err)
	}
	if _, found := s.Stored("one", "deep/key"); found {
		t.Error("a forgotten key is in the files")
	}
	if got, err := read(t, other, "key"); err != nil || got != "of another round" {
		t.Errorf("another prefix: %q, %v", got, err)
	}
}
