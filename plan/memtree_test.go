package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The ids below were printed by git write-tree and git ls-tree for the same files.
func TestMemTreeHasGitsIDs(t *testing.T) {
	m := MakeMemTree(map[string]MemFile{
		"a/b/c.txt":        {Data: []byte("hello\n")},
		"a.b/empty":        {},
		"a-b":              {Data: []byte("q")},
		"a0":               {Data: []byte("q")},
		"ab/x":             {Data: []byte("x")},
		"run.sh":           {Data: []byte("#!/bin/sh\n"), Exec: true},
		"link":             {Data: []byte("a/b/c.txt"), Kind: KindLink},
		"dir with space/z": {Data: []byte("z")},
		"sub":              {Kind: KindSubmodule, Hash: "1234567890123456789012345678901234567890"},
	})
	const want = `0 a-b ea0c8a85cb7293feae2c9e151d1d395be59b61fa
1 a.b 417c01c8795a35b8e835113a85a5c0c1c77f67fb
0 a.b/empty e69de29bb2d1d6434b8b29ae775ad8c2e48c5391
1 a 91942592790b66ae4bec319bf951d1c7692c5e85
1 a/b 2bcada35da78a7011b5497fcf851bb11e2353a39
0 a/b/c.txt ce013625030ba8dba906f756967f9e9ca394464a
0 a0 ea0c8a85cb7293feae2c9e151d1d395be59b61fa
1 ab f115c6d5cfb15ca1a72429900dcaca0fd1057951
0 ab/x c1b0730e0133447badcfd47fd144e254807b06e1
1 dir with space eb92c25e75841eeae44b0b0aeaccf99bde0c93ac
0 dir with space/z fa7af8bf5fdd704f73beb3adc5612682a98e1af5
2 link ba5e661deffee8068c6b5e8152db7462af285505
0 run.sh 1a2485251c33a70432394c93fb89330ef214bfc9
3 sub 1234567890123456789012345678901234567890
`
	var b strings.Builder
	var list func(dir string)
	list = func(dir string) {
		es, err := m.Entries(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			full := strings.TrimPrefix(dir+"/"+e.Name, "/")
			fmt.Fprintf(&b, "%d %s %s\n", e.Kind, full, e.Hash)
			if e.Kind == KindDir {
				list(full)
			}
		}
	}
	list("")
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
	if got := m.Root(); got != "1c3a33d284ba3b21502c5196d5fee54ee1b6ae2e" {
		t.Errorf("root %s", got)
	}
}

func TestMemTreeReads(t *testing.T) {
	m := MakeMemTree(map[string]MemFile{"d/f": file("1234"), "l": {Kind: KindLink, Data: []byte("d/f")}})
	if b, err := m.Read("d/f", 4); err != nil || string(b) != "1234" {
		t.Error(string(b), err)
	}
	if _, err := m.Read("d/f", 3); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, err := m.Read("l", 100); err == nil {
		t.Error("a link was read like a file")
	}
	for _, p := range []string{"x", "d"} {
		if _, err := m.Read(p, 100); !errors.Is(err, fs.ErrNotExist) {
			t.Error(p, err)
		}
	}
	if _, err := m.Entries("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if es, err := NewMemTree(nil).Entries(""); err != nil || len(es) != 0 {
		t.Error(es, err)
	}
}
