package tag

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// maxEntry bounds one entry, bytes: a message and its sentence fit.
const maxEntry = 64 << 10

// nameless is the ledger of names that no model can have: those that do not parse.
const nameless = "_"

// Entry is lane/<model>/ledger/<seq>.json: one verdict on one tag object under one name, or the note that an accepted tag
// is gone. It is created if absent, signed by the lane and never changed; each holds the hash of the one before.
type Entry struct {
	Protocol int    `json:"protocol"`
	Seq      int64  `json:"seq"`      // from 1, without a gap
	Before   string `json:"before"`   // Hash of entry Seq-1; of the first: empty
	Nonce    string `json:"nonce"`    // of the writer: settles a lost answer
	Ref      string `json:"ref"`      // full name
	Object   string `json:"object"`   // that the ref named: of a tag object, or of what a lightweight tag points at
	Code     Code   `json:"code"`     // Accepted, why it is refused, or TagDeleted
	Text     string `json:"text"`     // one sentence; of an accepted one: what it asks for
	RawHash  string `json:"raw_hash"` // sha256 of the raw tag object; empty: it is none
	Commit   string `json:"commit"`   // that is tagged; empty: not known
	Signer   string `json:"signer"`   // principal; empty: not known
	Key      string `json:"key"`      // fingerprint

	Message   *Message          `json:"message,omitempty"`  // of an accepted tag
	Requires  map[string]string `json:"requires,omitempty"` // of an accepted release: the environment that the policy pinned then
	Signers   string            `json:"signers,omitempty"`  // commit whose lane/allowed_signers counted
	Policy    string            `json:"policy,omitempty"`   // commit whose lane/policy.yaml counted
	Seen      string            `json:"seen"`               // our clock at the verdict, RFC 3339: what valid-after and valid-before were held against
	Signature string            `json:"signature"`          // of the lane that wrote it, over all else

	Hash string `json:"-"` // sha256 of its bytes, for the records that rest on it
}

// Name is what the tag of an accepted entry is called.
func (e Entry) Name() Name {
	n, _ := Parse(e.Ref, []string{stageOf(e.Ref)})
	return n
}

// stageOf cuts the stage out of a ref that parsed once, when the stages were perhaps others than today's.
func stageOf(ref string) string {
	parts := strings.Split(ref, "/")
	return parts[max(0, len(parts)-2)]
}

// Ledger is the chain of one model. Not safe for several goroutines; any number of processes may write the same one.
type Ledger struct {
	store   bucket.Bucket
	seal    Seal
	model   string
	entries []Entry
	known   map[[2]string]bool // refs and objects that have a verdict
	whole   bool               // nothing lay behind the end when it was first read
}

// OpenLedger names the ledger of a model; nothing is read before Read.
func OpenLedger(store bucket.Bucket, seal Seal, model string) *Ledger {
	return &Ledger{store: store, seal: seal, model: model, known: map[[2]string]bool{}}
}

func prefix(model string) string { return "lane/" + model + "/ledger/" }

// Key is where the entry of a number lies.
func Key(model string, seq int64) string { return fmt.Sprintf("%s%08d.json", prefix(model), seq) }

// Damaged is a ledger that is not the chain it was: somebody changed or removed an entry.
type Damaged struct {
	Key  string
	Text string
}

func (d *Damaged) Error() string {
	return fmt.Sprintf("%s %s: no tag of this model is judged until the entry is back as it was (look into the store's versions)", d.Key, d.Text)
}

// errLost says that another writer took the number: read on and judge anew.
var errLost = errors.New("another lane wrote this entry")

// Entries are what Read has read, oldest first.
func (l *Ledger) Entries() []Entry { return l.entries }

func (l *Ledger) add(e Entry) {
	l.entries = append(l.entries, e)
	if e.Code != TagDeleted {
		l.known[[2]string{e.Ref, e.Object}] = true
	}
}

// Read reads on from what it has, checking the chain. A fault of the store leaves what was read before.
func (l *Ledger) Read(ctx context.Context) error {
	for {
		e, err := l.get(ctx, int64(len(l.entries))+1)
		if err != nil {
			return err
		}
		if e != nil {
			l.add(*e)
			continue
		}
		if l.whole { // what is removed from now on breaks the chain of whatever follows
			return nil
		}
		after := ""
		if n := int64(len(l.entries)); n > 0 {
			after = Key(l.model, n)
		}
		page, err := l.store.List(ctx, prefix(l.model), after, 1)
		if err != nil {
			return err
		}
		if len(page.Items) == 0 {
			l.whole = true
			return nil
		}
		// Something lies behind: written since, or an entry before it was removed.
		if e, err = l.get(ctx, int64(len(l.entries))+1); err != nil {
			return err
		}
		if e == nil {
			return &Damaged{Key(l.model, int64(len(l.entries))+1), "is missing, and " + clip(page.Items[0].Key) + " is there"}
		}
		l.add(*e)
	}
}

// get reads and checks one entry; nil: it is not there.
func (l *Ledger) get(ctx context.Context, seq int64) (*Entry, error) {
	key := Key(l.model, seq)
	o, err := l.store.Get(ctx, key, bucket.Range{})
	if bucket.Is(err, bucket.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(o.Body, maxEntry+1))
	if err = errors.Join(err, o.Body.Close()); err != nil {
		return nil, err
	}
	if o.Size <= maxEntry && int64(len(b)) != o.Size {
		return nil, fmt.Errorf("%s came with %d bytes of %d: it is read again at the next look", key, len(b), o.Size)
	}
	e, why := decode(b)
	before := ""
	if n := len(l.entries); n > 0 {
		before = l.entries[n-1].Hash
	}
	switch {
	case why != "":
	case !l.seal.holds(e):
		why = "is not signed by a lane that counts here (--trust names the keys of others)"
	case e.Seq != seq:
		why = fmt.Sprintf("says that it is number %d", e.Seq)
	case e.Before != before:
		why = "does not follow the entry before it"
	case l.model == nameless && modelOf(e.Ref) != "" || l.model != nameless && modelOf(e.Ref) != l.model:
		why = "is of another model"
	}
	if why != "" {
		return nil, &Damaged{key, why}
	}
	return &e, nil
}

// decode reads an entry's bytes, which must be the ones that we write for it.
func decode(b []byte) (Entry, string) {
	var e Entry
	if err := record.Decode(b, maxEntry, &e); err != nil {
		return e, "cannot be read (" + clip(err.Error()) + ")"
	}
	if e.Protocol > record.Protocol {
		return e, fmt.Sprintf("is of protocol %d, this headway-lane reads %d: use a newer one", e.Protocol, record.Protocol)
	}
	again, err := record.Encode(e)
	if err != nil || !bytes.Equal(again, b) {
		return e, "is not written as a lane writes it"
	}
	e.Hash = record.Hash(b)
	return e, ""
}

// append writes an entry behind the last one that was read. errLost: another writer was first. Any other error leaves open
// whether it was written; Read tells at the next look.
func (l *Ledger) append(ctx context.Context, e Entry) (Entry, error) {
	e.Protocol, e.Seq, e.Nonce, e.Before = record.Protocol, int64(len(l.entries))+1, record.Nonce(), ""
	if n := len(l.entries); n > 0 {
		e.Before = l.entries[n-1].Hash
	}
	if err := l.seal.sign(&e); err != nil {
		return e, err
	}
	b, err := record.Encode(e)
	if err != nil {
		return e, err
	}
	if len(b) > maxEntry {
		return e, fmt.Errorf("the entry of %s has %d bytes, at most %d are written", clip(e.Ref), len(b), maxEntry)
	}
	_, err = l.store.Put(ctx, Key(l.model, e.Seq), bytes.NewReader(b), bucket.IfAbsent())
	if err != nil && !bucket.Is(err, bucket.Condition) && !bucket.Is(err, bucket.Raced) && !bucket.Is(err, bucket.Unknown) {
		return e, err
	}
	if err != nil {
		// Ours may have landed although the answer says otherwise: a retry below us is told that the key is taken.
		there, readErr := l.get(ctx, e.Seq)
		switch {
		case readErr != nil:
			return e, errors.Join(err, readErr)
		case there == nil:
			return e, err
		}
		l.add(*there)
		if there.Nonce != e.Nonce {
			return e, errLost
		}
		return *there, nil
	}
	e.Hash = record.Hash(b)
	l.add(e)
	return e, nil
}

// Models lists the models that have a ledger, by name.
func Models(ctx context.Context, store bucket.Bucket) (out []string, err error) {
	after := ""
	for {
		page, err := store.List(ctx, "lane/", after, 1)
		if err != nil {
			return nil, err
		}
		if len(page.Items) == 0 {
			return out, nil
		}
		model, rest, _ := strings.Cut(strings.TrimPrefix(page.Items[0].Key, "lane/"), "/")
		if rest == "" {
			after = page.Items[0].Key
			continue
		}
		after = "lane/" + model + "0" // just behind lane/<model>/
		if model == nameless || CheckModel(model) == "" {
			page, err := store.List(ctx, prefix(model), "", 1)
			if err != nil {
				return nil, err
			}
			if len(page.Items) > 0 {
				out = append(out, model)
			}
		}
	}
}

// first is the first verdict on a name; deleted: the tag was noted to be gone since.
func first(entries []Entry, ref string) (e *Entry, deleted bool) {
	for i := range entries {
		switch {
		case entries[i].Ref != ref:
		case entries[i].Code == TagDeleted:
			deleted = true
		case e == nil:
			e = &entries[i]
		}
	}
	return e, deleted
}

// highest is the highest accepted version of a major line.
func highest(entries []Entry, major int64) (best Version, any bool) {
	for _, e := range entries {
		if v := e.Name().Version; e.Code == Accepted && e.Name().Stage == "" && v.Major == major && (!any || v.Compare(best) > 0) {
			best, any = v, true
		}
	}
	return best, any
}

// Release is the accepted release of a version, if there is one.
func Release(entries []Entry, version string) *Entry {
	for i, e := range entries {
		if e.Code == Accepted && e.Name().Stage == "" && e.Name().Version.String() == version {
			return &entries[i]
		}
	}
	return nil
}

// NextStage says which number the next tag of a stage has, and what its Previous must be. Numbers of refused tags are
// spent: their names can never name anything else.
func NextStage(entries []Entry, stage string) (n int64, previous string) {
	n, previous = 1, None
	for _, e := range entries {
		if e.Code == Accepted && e.Name().Stage == stage && e.Name().N >= n {
			n, previous = e.Name().N+1, e.Object
		}
	}
	spent := map[int64]bool{}
	for _, e := range entries {
		if e.Code != TagDeleted && e.Code != Accepted && e.Code != TagMoved && stageOf(e.Ref) == stage {
			if k, err := strconv.ParseInt(e.Ref[strings.LastIndexByte(e.Ref, '/')+1:], 10, 64); err == nil && strings.HasPrefix(e.Ref, refTags+dirStage) {
				spent[k] = true
			}
		}
	}
	for spent[n] {
		n++
	}
	return n, previous
}

// NextVersion is the first version that may still be released above one, and above the accepted ones of its major line.
func NextVersion(entries []Entry, above Version) Version {
	v := above
	if best, any := highest(entries, above.Major); any && best.Compare(v) > 0 {
		v = best
	}
	for v = v.next(); slices.ContainsFunc(entries, func(e Entry) bool {
		return strings.HasPrefix(e.Ref, refTags+dirRelease) && strings.HasSuffix(e.Ref, "/"+v.String())
	}); {
		v.Patch++
	}
	return v
}
