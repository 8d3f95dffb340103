package repo

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
)

// TestPacks: every object of a repository in one pack, large or a delta, is what git says it is; a pack that comes later is
// found after refresh, one that went is not asked any more, and an index that is damaged is said to be.
func TestPacks(t *testing.T) {
	o := newOrigin(t)
	long := strings.Repeat("a line of a file that changes a little\n", 2000)
	o.commit("main", "a", files("long", long, "b/c", "1"))
	o.commit("main", "b", files("long", long+"more\n", "b/c", "2"))
	gitCLI(t, o.dir, "gc", "-q", "--prune=now")
	s, err := openStore(o.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	all := strings.Fields(gitCLI(t, o.dir, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)"))
	for _, h := range all {
		e, err := s.encoded(plumbing.AnyObject, plumbing.NewHash(h))
		if err != nil || e.Hash().String() != h {
			t.Errorf("%s: %v", h, err)
		}
	}
	p := s.chain[0].packs[0]
	if p.file != nil || int64(len(all)) != p.n {
		t.Errorf("%d objects of %d; the index is read whole: %v", p.n, len(all), p.file == nil)
	}
	s.rest()
	late := o.commit("main", "c", files("long", "short", "b/c", "3"))
	gitCLI(t, o.dir, "repack", "-q", "-d")
	if err := s.refresh(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.commit(plumbing.NewHash(late)); err != nil {
		t.Error(err)
	}
	if got := s.chain[0].packs; len(got) != 2 || got[0] != p {
		t.Errorf("%d packs; the first was opened again: %v", len(got), got[0] != p)
	}
	gitCLI(t, o.dir, "gc", "-q", "--prune=now")
	if err := s.refresh(); err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		if _, err := s.encoded(plumbing.AnyObject, plumbing.NewHash(h)); err != nil {
			t.Errorf("after gc: %s: %v", h, err)
		}
	}
	if err := os.WriteFile(filepath.Join(o.dir, "objects", "pack", "pack-odd.idx"), []byte("odd"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.refresh(); err != nil {
		t.Fatal(err)
	}
	s.rest()
	if _, err := s.commit(plumbing.NewHash(late)); class(err) != Corrupt || !strings.Contains(err.Error(), "pack-odd.idx") {
		t.Errorf("a damaged index: %v", err)
	}
}

// indexOf is the index of a pack with objects at the given offsets, the last of them in the table of large ones.
func indexOf(offsets []uint64) (b []byte, names []plumbing.Hash) {
	b = append(b, "\xfftOc\x00\x00\x00\x02"...)
	var large []byte
	for i := range 256 {
		b = binary.BigEndian.AppendUint32(b, uint32(min(i+1, len(offsets))))
	}
	for i := range offsets {
		names = append(names, plumbing.Hash{0: byte(i), 19: 7})
		b = append(b, names[i][:]...)
	}
	b = append(b, make([]byte, 4*len(offsets))...)
	for _, at := range offsets {
		if at < 1<<31 {
			b = binary.BigEndian.AppendUint32(b, uint32(at))
			continue
		}
		b = binary.BigEndian.AppendUint32(b, 1<<31|uint32(len(large)/8))
		large = binary.BigEndian.AppendUint64(large, at)
	}
	return append(append(b, large...), make([]byte, idxTrailer)...), names
}

func opened(t testing.TB, content []byte) (*pack, error) {
	t.Helper()
	fs := osfs.New(t.TempDir())
	if err := os.MkdirAll(packFolder(fs), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(packFolder(fs), "pack-x.idx"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	return openPack(fs, "pack-x", cache.NewObjectLRU(1<<20))
}

// TestPackIndex: names and offsets are found both ways, offsets beyond 31 bits too, also where the index is not read whole.
func TestPackIndex(t *testing.T) {
	for _, pad := range []int{0, idxSmall} {
		offsets := []uint64{1 << 40, 12, 5 << 30, 900, 1<<31 - 1, 1 << 31}
		b, names := indexOf(offsets)
		p, err := opened(t, append(b, make([]byte, pad)...))
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		for i, h := range names {
			if at, err := p.FindOffset(h); err != nil || uint64(at) != offsets[i] {
				t.Errorf("%s is at %d, %v; want %d", h, at, err, offsets[i])
			}
			if got, err := p.FindHash(int64(offsets[i])); err != nil || got != h {
				t.Errorf("%d has %s, %v; want %s", offsets[i], got, err, h)
			}
		}
		if _, err := p.FindHash(13); err != plumbing.ErrObjectNotFound {
			t.Error(err)
		}
		if ok, err := p.Contains(plumbing.Hash{0: 1, 19: 8}); ok || err != nil {
			t.Error(ok, err)
		}
	}
}

func FuzzPackIndex(f *testing.F) {
	b, names := indexOf([]uint64{12, 1 << 40})
	f.Add(b, names[1][:])
	f.Add(b[:len(b)-50], names[0][:])
	f.Add(bytes.Repeat([]byte{255}, idxNames), names[0][:])
	f.Fuzz(func(t *testing.T, content, name []byte) {
		p, err := opened(t, content)
		if err != nil {
			return
		}
		defer p.close()
		var h plumbing.Hash
		copy(h[:], name)
		if at, err := p.FindOffset(h); err == nil {
			if _, err := p.FindHash(at); err != nil {
				t.Fatalf("what was found at %d is not there: %v", at, err)
			}
		}
	})
}
