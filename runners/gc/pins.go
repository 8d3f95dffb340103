package gc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Where pins lie: the deploy lane's records, and the plans in force.
const (
	lanePrefix  = "lane/"
	forcePrefix = "accepted/"
)

// Bounds of what is read of a pin, bytes, of all names together, and how long what was read holds.
const (
	maxLane  = 16 << 20
	maxForce = 256 << 20
	maxNames = 2_000_000
	pinsHold = 2 * time.Second
)

// pins are what the lane and the plans in force name. Whatever looks like the digest of a work or the id of a tree, in
// a key or in a string of an object, is taken for one: too many pins keep what could go, and do no other harm.
type pins struct {
	s       Store
	lanes   []Store // of deploy lanes, beside what lies under lane/ of s itself
	at      time.Time
	objects map[place]pin // as read
	lane    map[string]bool
	names   map[string]bool // of lane and plans
}

type pin struct {
	version bucket.Version
	names   []string
}

// place is a key of one of the stores that pin.
type place struct {
	store int // 0: the one that is collected; else of lanes, from 1
	key   string
}

func newPins(s Store, lanes []Store) *pins {
	return &pins{s: s, lanes: lanes, objects: map[place]pin{}}
}

// fresh reads what changed since the last look, unless that was a moment ago. *Refusal: something cannot be read.
func (p *pins) fresh(ctx context.Context) error {
	if !p.at.IsZero() && time.Since(p.at) < pinsHold {
		return nil
	}
	return p.look(ctx)
}

// look reads what changed since the last look: a listing, and the objects that are new or of another version.
func (p *pins) look(ctx context.Context) error {
	now, there, n := time.Now(), map[place]pin{}, 0
	for _, prefix := range []string{lanePrefix, forcePrefix} {
		if err := p.lookAt(ctx, p.s, 0, prefix, there, &n); err != nil {
			return err
		}
	}
	for i, s := range p.lanes {
		if err := p.lookAt(ctx, s, i+1, lanePrefix, there, &n); err != nil {
			return fmt.Errorf("the store of a lane: %w", err)
		}
	}
	p.at, p.objects, p.lane, p.names = now, there, map[string]bool{}, map[string]bool{}
	for at, o := range there {
		for _, name := range o.names {
			p.names[name] = true
			if strings.HasPrefix(at.key, lanePrefix) {
				p.lane[name] = true
			}
		}
	}
	return nil
}

// lookAt reads what pins under one prefix of one store into there, and counts the names.
func (p *pins) lookAt(ctx context.Context, s Store, store int, prefix string, there map[place]pin, n *int) error {
	for after := ""; ; {
		page, err := s.List(ctx, prefix, after, 0)
		if err != nil {
			return fmt.Errorf("look at what pins works: %w", err)
		}
		for _, it := range page.Items {
			after = it.Key
			at := place{store, it.Key}
			old, known := p.objects[at]
			if !known || old.version != it.Version {
				if old, err = p.read(ctx, s, prefix, it); err != nil {
					return err
				}
			}
			if *n += len(old.names); *n > maxNames {
				return &Refusal{Key: printable(prefix, mostShown), Text: fmt.Sprintf("names more than %d works: this version cannot hold so many", maxNames)}
			}
			there[at] = old
		}
		if !page.More || len(page.Items) == 0 {
			return nil
		}
	}
}

// read scans one object. What is no JSON is data, and names what its bytes spell, as long as it is not too large for a
// record; but where its place, its own name or its first byte says that it is JSON, it must be.
func (p *pins) read(ctx context.Context, s Store, prefix string, it bucket.Info) (pin, error) {
	out := pin{version: it.Version}
	out.scan(it.Key)
	o, err := s.Get(ctx, it.Key, bucket.Range{})
	if bucket.Is(err, bucket.NotFound) {
		return out, nil // it went since it was listed
	}
	if bad, is := errors.AsType[*bucket.Error](err); is && bad.Code == bucket.BadKey {
		why := "the store refuses the key"
		if bad.Err != nil {
			why = bad.Err.Error()
		}
		return out, &Refusal{shown(it.Key), fmt.Sprintf("cannot be read (%s), so that what it names is not known: no version of headway wrote this key; look who did, and rename or remove it by hand in the store itself", why)}
	}
	if err != nil {
		return out, err
	}
	defer func() { _ = o.Body.Close() }()
	body := &measured{r: bufio.NewReader(o.Body)}
	first, _ := body.r.Peek(1)
	must, most := prefix == forcePrefix || strings.HasSuffix(it.Key, ".json") || len(first) == 1 && (first[0] == '{' || first[0] == '['), int64(maxLane)
	if prefix == forcePrefix {
		most = maxForce
	}
	if o.Size > most {
		if !must {
			return out, nil
		}
		return out, &Refusal{printable(it.Key, mostShown), fmt.Sprintf("has %d bytes, of which at most %d are read: what it names is not known", o.Size, most)}
	}
	var raw bytes.Buffer // of what may be text
	from := io.Reader(body)
	if prefix == lanePrefix {
		from = io.TeeReader(body, &raw)
	}
	bad := out.strings(from)
	if _, err := io.Copy(io.Discard, from); err != nil {
		return out, fmt.Errorf("read %s: %w", it.Key, err)
	}
	if body.n != o.Size {
		return out, fmt.Errorf("read %s: %d of %d bytes arrived", it.Key, body.n, o.Size)
	}
	if bad != nil && must {
		return out, &Refusal{printable(it.Key, mostShown), "is no JSON, so that what it names is not known: look who wrote it, and restore or remove it by hand"}
	}
	out.scan(raw.String())
	slices.Sort(out.names)
	out.names = slices.Compact(out.names)
	return out, nil
}

// measured counts the bytes that were read.
type measured struct {
	r *bufio.Reader
	n int64
}

func (c *measured) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// strings scans every string of a stream of JSON, keys included.
func (o *pin) strings(r io.Reader) error {
	d := json.NewDecoder(r)
	d.UseNumber()
	for {
		t, err := d.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if s, is := t.(string); is {
			o.scan(s)
		}
	}
}

// scan adds every run of hex digits in s that is as long as a digest or a tree id; of a run that is longer, every part
// that is, since a letter before a name may be a digit too.
func (o *pin) scan(s string) {
	s = strings.ToLower(s)
	for i := 0; i < len(s); i++ {
		j := i
		for j < len(s) && isHex(s[j]) {
			j++
		}
		switch run := s[i:j]; {
		case isName(run):
			o.names = append(o.names, run)
		case len(run) > shortName && len(run) <= longestRun:
			for _, n := range []int{shortName, longName} {
				for k := 0; k+n <= len(run); k++ {
					o.names = append(o.names, run[k:k+n])
				}
			}
		}
		i = j
	}
}

// Digits of a Git tree's id, and of a work or a tree's id by sha256; longer runs are data.
const (
	shortName  = 40
	longName   = 64
	longestRun = 512
)

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

// isName reports hex digits of the length of a work or of a tree.
func isName(s string) bool {
	return (len(s) == shortName || len(s) == longName) && strings.Trim(s, "0123456789abcdef") == ""
}

// Bounds of foreign text that is shown, bytes: of one name, and of a sentence that holds one.
const (
	mostShown = 400
	mostText  = 1000
)

// printable makes foreign text safe to show: bounded, and quoted when anything in it is not plain ASCII.
func printable(s string, most int) string {
	if len(s) > most {
		s = s[:most] + "..."
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
		return strconv.QuoteToASCII(s)
	}
	return s
}

// shown is a key as it is named to whoever has to find it: quoted, in full but for what is longer than mostShown.
func shown(key string) string {
	q := strconv.QuoteToASCII(key)
	if len(q) > mostShown {
		q = q[:mostShown] + "..."
	}
	return q
}
