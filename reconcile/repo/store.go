package repo

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/headway-run/headway/plan"
)

// Bounds on objects that are read whole.
const (
	maxCommit    = 1 << 20
	maxTree      = 16 << 20
	objectCache  = 8 << 20 // bytes of decoded objects kept per handle
	maxAlternate = 8       // depth of the chain of alternates
)

// store is a read handle on the objects of one repository. Each of its methods takes the lock, so any number of
// goroutines may share it; nothing that it returns is shared with the handle underneath.
type store struct {
	common string // folder that holds objects/ and refs/
	mu     sync.Mutex
	chain  []*objects // own objects first, then alternates; nil after close
	// Trees that were parsed: those of late, and those of before, which are forgotten next. held is entries in the first.
	trees, older map[plumbing.Hash]*listing
	held         int
}

// openStore opens the repository whose objects lie in common/objects.
func openStore(common string) (*store, error) {
	s := &store{common: common, trees: map[plumbing.Hash]*listing{}}
	if err := s.open(); err != nil {
		return nil, err
	}
	return s, nil
}

// open makes the chain of storages. The library's own way through alternates is not used: it indexes every pack again
// for each object, and its size look-up does not know alternates at all.
func (s *store) open() error {
	dirs := []string{s.common}
	for i := 0; i < len(dirs); i++ {
		if i > maxAlternate {
			return &Error{Class: Unsupported, Text: fmt.Sprintf("%s has more than %d alternates", s.common, maxAlternate),
				Hint: "repack it (git repack -a -d)"}
		}
		more, err := alternates(dirs[i])
		if err != nil {
			return err
		}
		dirs = append(dirs, more...)
	}
	for _, d := range dirs {
		s.chain = append(s.chain, openObjects(d))
	}
	return nil
}

// rest forgets the objects that were read. They are kept for their neighbours in a pack, which are read with them or not at all.
func (s *store) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.chain {
		c.rest()
	}
}

// alternates lists the repositories whose objects the one at dir borrows.
func alternates(dir string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "objects", "info", "alternates"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if !filepath.IsAbs(line) {
			line = filepath.Join(dir, "objects", line)
		}
		if filepath.Base(line) != "objects" {
			return nil, &Error{Class: Unsupported, Text: fmt.Sprintf("%s borrows objects from %q, which is no objects folder", dir, line),
				Hint: "repack it (git repack -a -d) and remove objects/info/alternates"}
		}
		out = append(out, filepath.Dir(line))
	}
	return out, nil
}

// close gives the file descriptors back.
func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

func (s *store) drop() {
	for _, c := range s.chain {
		c.close()
	}
	s.chain = nil
}

// refresh lists the packs again, so that the next look-up sees what a fetch has written.
func (s *store) refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chain == nil {
		return errClosed
	}
	for _, c := range s.chain {
		c.listed = false
	}
	return nil
}

// swap puts another folder in this one's place while nobody reads.
func (s *store) swap(f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chain == nil {
		return errClosed
	}
	return errors.Join(f(), s.reopen())
}

func (s *store) reopen() error {
	if s.chain == nil {
		return errClosed
	}
	s.drop()
	return s.open()
}

// passing reports whether an error may go away in a fresh handle: another process may just have packed the object.
func passing(err error) bool {
	known, ok := errors.AsType[*Error](err)
	return errors.Is(err, plumbing.ErrObjectNotFound) || ok && known.Class == Corrupt
}

// read returns the content of one object of a type, refusing one over max bytes before it is read. What is not found
// or not readable is looked for once more in a fresh handle. The content is held against its name.
func (s *store) read(t plumbing.ObjectType, h plumbing.Hash, max int64) ([]byte, error) {
	_, b, err := s.readTyped(t, h, max)
	return b, err
}

// readTyped is read, and says of which type an object is when any will do.
func (s *store) readTyped(t plumbing.ObjectType, h plumbing.Hash, max int64) (plumbing.ObjectType, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, b, err := s.readOnce(t, h, max)
	if passing(err) {
		if again := s.reopen(); again != nil {
			return t, nil, again
		}
		is, b, err = s.readOnce(t, h, max)
	}
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return t, nil, &Error{Class: MissingObject, Text: fmt.Sprintf("the %s %s is not in the object store", t, h),
			Hint: "the copy is partial, shallow or damaged: fetch it again in full (git fsck tells more)", Err: err}
	}
	return is, b, err
}

func (s *store) readOnce(t plumbing.ObjectType, h plumbing.Hash, max int64) (plumbing.ObjectType, []byte, error) {
	if s.chain == nil {
		return t, nil, errClosed
	}
	for _, c := range s.chain {
		o, size, err := c.find(h, max)
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			continue
		}
		if err != nil {
			return t, nil, corrupt(t, h, err)
		}
		if o == nil {
			return t, nil, &Error{Class: TooLarge, Err: plan.ErrTooLarge, Text: fmt.Sprintf("the %s %s has %d bytes, at most %d are read", t, h, size, max),
				Hint: "make it smaller or keep it out of the repository"}
		}
		if t != plumbing.AnyObject && o.Type() != t {
			return t, nil, &Error{Class: Corrupt, Text: fmt.Sprintf("%s is a %s where a %s is named", h, o.Type(), t), Hint: "the commit is malformed: make it again"}
		}
		b, err := content(o, max)
		if err != nil {
			return t, nil, corrupt(t, h, err)
		}
		if got := plumbing.ComputeHash(o.Type(), b); got != h {
			return t, nil, corrupt(t, h, fmt.Errorf("its content hashes to %s", got))
		}
		return o.Type(), b, nil
	}
	return t, nil, plumbing.ErrObjectNotFound
}

// encoded is what a fetch asks for: which commits are at hand. It looks once.
func (s *store) encoded(t plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, b, err := s.readOnce(plumbing.AnyObject, h, maxTree)
	if err != nil {
		return nil, err
	}
	if t != plumbing.AnyObject && t != is {
		return nil, plumbing.ErrObjectNotFound
	}
	o := &plumbing.MemoryObject{}
	o.SetType(is)
	_, err = o.Write(b)
	return o, err
}

func corrupt(t plumbing.ObjectType, h plumbing.Hash, err error) *Error {
	return &Error{Class: Corrupt, Text: fmt.Sprintf("the %s %s cannot be read (%s)", t, h, shorten(err.Error())),
		Hint: "the object store is damaged; fetch it again in full (git fsck tells more)", Err: err}
}

func content(o plumbing.EncodedObject, max int64) (b []byte, err error) {
	r, err := o.Reader()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err = io.ReadAll(io.LimitReader(r, max+1))
	if err == nil && int64(len(b)) != o.Size() {
		err = fmt.Errorf("found %d bytes of %d", len(b), o.Size())
	}
	return b, err
}

// Commit is one commit as its author wrote it. Names and message are foreign text.
type Commit struct {
	Hash      string // 40 hex digits
	Tree      string
	Parents   []string
	Message   string
	Author    string
	Email     string
	Time      time.Time // author's
	Committed time.Time
}

// Subject is the first line of the message.
func (c Commit) Subject() string {
	line, _, _ := strings.Cut(c.Message, "\n")
	return line
}

func (s *store) commit(h plumbing.Hash) (Commit, error) {
	b, err := s.read(plumbing.CommitObject, h, maxCommit)
	if err != nil {
		return Commit{}, err
	}
	o := &plumbing.MemoryObject{}
	o.SetType(plumbing.CommitObject)
	if _, err := o.Write(b); err != nil {
		return Commit{}, err
	}
	var c object.Commit
	if err := c.Decode(o); err != nil {
		return Commit{}, &Error{Class: Corrupt, Text: fmt.Sprintf("the commit %s is malformed (%s)", h, shorten(err.Error())), Hint: "make it again", Err: err}
	}
	out := Commit{Hash: h.String(), Tree: c.TreeHash.String(), Message: c.Message, Author: c.Author.Name, Email: c.Author.Email,
		Time: c.Author.When, Committed: c.Committer.When}
	for _, p := range c.ParentHashes {
		out.Parents = append(out.Parents, p.String())
	}
	return out, nil
}

// shallow is the set of commits whose parents were left out of the copy.
func (s *store) shallow() (map[string]bool, error) {
	f, err := os.Open(filepath.Join(s.common, "shallow"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out, lines := map[string]bool{}, bufio.NewScanner(f)
	for lines.Scan() {
		out[strings.TrimSpace(lines.Text())] = true
	}
	return out, lines.Err()
}

// errClosed answers every call after Close.
var errClosed = errors.New("the repository is closed")
