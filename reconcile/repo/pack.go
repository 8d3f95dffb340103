package repo

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/objfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"
)

// objects reads what one repository's objects folder holds: packs, and objects by themselves. The library's own storage loads
// the index of every pack, and a map of it by offset, with each fetch again: 15 MB and most of what a poll costs in a
// repository of 60,000 objects. Here an index is asked where it lies, and is opened once.
type objects struct {
	fs     billy.Filesystem
	loose  *dotgit.DotGit
	cache  cache.Object
	packs  []*pack
	listed bool
}

func openObjects(common string) *objects {
	fs := osfs.New(common)
	return &objects{fs: fs, loose: dotgit.New(fs), cache: cache.NewObjectLRU(objectCache)}
}

func packFolder(fs billy.Filesystem) string { return filepath.Join(fs.Root(), "objects", "pack") }

// list finds the packs, and keeps those that are known.
func (o *objects) list() error {
	entries, err := os.ReadDir(packFolder(o.fs))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	known := map[string]*pack{}
	for _, p := range o.packs {
		known[p.name] = p
	}
	o.packs = nil
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".idx")
		if !ok || !strings.HasPrefix(name, "pack-") {
			continue
		}
		p := known[name]
		if p == nil {
			if p, err = openPack(o.fs, name, o.cache); errors.Is(err, os.ErrNotExist) {
				continue // it went since it was listed
			} else if err != nil {
				break
			}
		}
		delete(known, name)
		o.packs = append(o.packs, p)
	}
	for _, p := range known {
		p.close()
	}
	o.listed = err == nil || errors.Is(err, os.ErrNotExist)
	if !o.listed {
		return err
	}
	slices.SortStableFunc(o.packs, func(a, b *pack) int { return cmp.Compare(b.n, a.n) }) // most are in the largest
	return nil
}

// find opens one object; when it has more than max bytes, its size is the answer and the object is nil.
func (o *objects) find(h plumbing.Hash, max int64) (plumbing.EncodedObject, int64, error) {
	if e, ok := o.cache.Get(h); ok {
		if e.Size() > max {
			return nil, e.Size(), nil
		}
		return e, e.Size(), nil
	}
	if !o.listed {
		if err := o.list(); err != nil {
			return nil, 0, err
		}
	}
	for _, p := range o.packs {
		at, err := p.FindOffset(h)
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		return p.object(at, max)
	}
	return o.alone(h, max)
}

// alone opens an object that is a file of its own.
func (o *objects) alone(h plumbing.Hash, max int64) (out plumbing.EncodedObject, size int64, err error) {
	f, err := o.loose.Object(h)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, plumbing.ErrObjectNotFound
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	r, err := objfile.NewReader(f)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	t, size, err := r.Header()
	if err != nil || size > max {
		return nil, size, err
	}
	b, err := io.ReadAll(io.LimitReader(r, size+1))
	if err != nil {
		return nil, size, err
	}
	e := &plumbing.MemoryObject{}
	e.SetType(t)
	if _, err := e.Write(b); err != nil {
		return nil, size, err
	}
	e.SetSize(size) // what the header says: the reader holds the content against it
	o.cache.Put(e)
	return e, size, nil
}

// rest lets go of what the next look-up can open again.
func (o *objects) rest() {
	o.cache.Clear()
	for _, p := range o.packs {
		p.shut()
	}
}

func (o *objects) close() {
	for _, p := range o.packs {
		p.close()
	}
	o.packs, o.listed = nil, false
}

// Where things lie in the index of a pack, version 2: a magic number, how many names begin with each byte or a lower one, the
// names, their checksums, their offsets, and those offsets that need more than 31 bits.
const (
	idxNames   = 8 + 256*4
	idxTrailer = 40
	idxSmall   = 16 << 10 // bytes up to which an index is read whole
	idName     = 20
)

// pack is one pack with its index, which is read where it lies.
type pack struct {
	name   string
	fs     billy.Filesystem
	cache  cache.Object
	fanout [256]uint32
	n      int64
	index  io.ReaderAt
	file   *os.File           // of index; nil: it was read whole
	data   *packfile.Packfile // nil: it is not open
	places []place            // sorted by offset; nil: nobody has asked for it
}

// place is where the object with the i-th name lies.
type place struct {
	offset int64
	i      uint32
}

var _ idxfile.Index = (*pack)(nil)

func openPack(fs billy.Filesystem, name string, c cache.Object) (*pack, error) {
	f, err := os.Open(filepath.Join(packFolder(fs), name+".idx"))
	if err != nil {
		return nil, err
	}
	p := &pack{name: name, fs: fs, cache: c, index: f, file: f}
	if err := p.head(); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s.idx: %w", name, err)
	}
	return p, nil
}

// head reads and checks the front of the index.
func (p *pack) head() error {
	st, err := p.file.Stat()
	if err != nil {
		return err
	}
	var b [idxNames]byte
	if _, err := p.file.ReadAt(b[:], 0); err != nil {
		return err
	}
	if !bytes.Equal(b[:8], []byte("\xfftOc\x00\x00\x00\x02")) {
		return errors.New("it is no pack index of version 2")
	}
	for i := range p.fanout {
		p.fanout[i] = binary.BigEndian.Uint32(b[8+4*i:])
		if i > 0 && p.fanout[i] < p.fanout[i-1] {
			return errors.New("its counts go down")
		}
	}
	p.n = int64(p.fanout[255])
	if st.Size() < idxNames+p.n*(idName+4+4)+idxTrailer {
		return errors.New("it is too short for what it counts")
	}
	if st.Size() > idxSmall {
		return nil
	}
	all := make([]byte, st.Size())
	if _, err := p.file.ReadAt(all, 0); err != nil {
		return err
	}
	_ = p.file.Close() // it was only read
	p.index, p.file = bytes.NewReader(all), nil
	return nil
}

// object reads the object at an offset, unless it has more than max bytes.
func (p *pack) object(at, max int64) (plumbing.EncodedObject, int64, error) {
	if p.data == nil {
		f, err := p.fs.Open(p.fs.Join("objects", "pack", p.name+".pack"))
		if err != nil {
			return nil, 0, err
		}
		p.data = packfile.NewPackfileWithCache(p, p.fs, f, p.cache, 0)
	}
	size, err := p.data.GetSizeByOffset(at)
	if err != nil || size > max {
		return nil, size, err
	}
	o, err := p.data.GetByOffset(at)
	return o, size, err
}

// shut closes the pack, but not its index.
func (p *pack) shut() {
	if p.data != nil {
		_ = p.data.Close() // it was only read
		p.data = nil
	}
}

func (p *pack) close() {
	p.shut()
	if p.file != nil {
		_ = p.file.Close() // it was only read
	}
}

// FindOffset implements idxfile.Index.
func (p *pack) FindOffset(h plumbing.Hash) (int64, error) {
	first, end := int64(0), int64(p.fanout[h[0]])
	if h[0] > 0 {
		first = int64(p.fanout[h[0]-1])
	}
	if first == end {
		return 0, plumbing.ErrObjectNotFound
	}
	names := make([]byte, (end-first)*idName)
	if _, err := p.index.ReadAt(names, idxNames+first*idName); err != nil {
		return 0, err
	}
	i := sort.Search(int(end-first), func(i int) bool { return bytes.Compare(names[i*idName:(i+1)*idName], h[:]) >= 0 })
	if i == int(end-first) || !bytes.Equal(names[i*idName:(i+1)*idName], h[:]) {
		return 0, plumbing.ErrObjectNotFound
	}
	var b [4]byte
	if _, err := p.index.ReadAt(b[:], p.offsets()+4*(first+int64(i))); err != nil {
		return 0, err
	}
	return p.offset(binary.BigEndian.Uint32(b[:]))
}

func (p *pack) offsets() int64 { return idxNames + p.n*(idName+4) }

// offset is what an entry of the table of offsets says.
func (p *pack) offset(v uint32) (int64, error) {
	if v < 1<<31 {
		return int64(v), nil
	}
	var b [8]byte
	if _, err := p.index.ReadAt(b[:], p.offsets()+4*p.n+8*int64(v&(1<<31-1))); err != nil {
		return 0, err
	}
	at := int64(binary.BigEndian.Uint64(b[:]))
	if at < 0 {
		return 0, errors.New("an offset in it is beyond all files")
	}
	return at, nil
}

// FindHash implements idxfile.Index. It is asked for what a delta rests on.
func (p *pack) FindHash(at int64) (plumbing.Hash, error) {
	var h plumbing.Hash
	if p.places == nil {
		table := make([]byte, 4*p.n)
		if _, err := p.index.ReadAt(table, p.offsets()); err != nil {
			return h, err
		}
		places := make([]place, p.n)
		for i := range places {
			offset, err := p.offset(binary.BigEndian.Uint32(table[4*i:]))
			if err != nil {
				return h, err
			}
			places[i] = place{offset, uint32(i)}
		}
		slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.offset, b.offset) })
		p.places = places
	}
	i, ok := slices.BinarySearchFunc(p.places, at, func(e place, at int64) int { return cmp.Compare(e.offset, at) })
	if !ok {
		return h, plumbing.ErrObjectNotFound
	}
	_, err := p.index.ReadAt(h[:], idxNames+int64(p.places[i].i)*idName)
	return h, err
}

// Contains implements idxfile.Index.
func (p *pack) Contains(h plumbing.Hash) (bool, error) {
	_, err := p.FindOffset(h)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Count implements idxfile.Index.
func (p *pack) Count() (int64, error) { return p.n, nil }

// errNotAsked answers what reading an object does not ask of an index.
var errNotAsked = errors.New("the index of a pack is asked for names and offsets only")

// FindCRC32 implements idxfile.Index.
func (p *pack) FindCRC32(plumbing.Hash) (uint32, error) { return 0, errNotAsked }

// Entries implements idxfile.Index.
func (p *pack) Entries() (idxfile.EntryIter, error) { return nil, errNotAsked }

// EntriesByOffset implements idxfile.Index.
func (p *pack) EntriesByOffset() (idxfile.EntryIter, error) { return nil, errNotAsked }
