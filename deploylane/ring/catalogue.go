package ring

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Shown is lane/<model>/ring/<ring>/catalog/<name>.json: what clients of a ring may use now. It is swapped by comparison, never
// removed.
type Shown struct {
	Schema  int    `json:"schema"` // 1
	Ring    string `json:"ring"`
	Serving bool   `json:"serving"`
	Load    uint64 `json:"load"` // generation that is shown, or that was shown last
	Entry   *Entry `json:"entry,omitempty"`
}

// maxShown bounds it, bytes.
const maxShown = 1 << 20

// StoreCatalogue is a catalogue in the lane's store. Each change is made on exactly the version that was read, and read back.
type StoreCatalogue struct{ Records Records }

var _ Catalogue = StoreCatalogue{}

var catalogName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// CheckCatalog says why no StoreCatalogue can have this name; nil: it can.
func CheckCatalog(name string) error {
	if !catalogName.MatchString(name) {
		return fmt.Errorf("switch.catalog is %q: expected a name of lower-case letters, digits, '.', '-' and '_', at most 63: it is part of a key in the lane's store", clip(name))
	}
	return nil
}

// Key is where a catalog lies.
func (c StoreCatalogue) Key(name string) string {
	return c.Records.prefix() + "catalog/" + name + ".json"
}

// Show implements Catalogue. A load that is older than the one shown last is refused: whoever asks has been replaced.
func (c StoreCatalogue) Show(ctx context.Context, e Entry) error {
	return c.swap(ctx, e.Catalog, func(old Shown) (Shown, error) {
		if e.Route.Load < old.Load {
			return old, fmt.Errorf("it has shown generation %d, which is above %d: another loader is at this ring", old.Load, e.Route.Load)
		}
		return Shown{Schema: 1, Ring: e.Ring, Serving: true, Load: e.Route.Load, Entry: &e}, nil
	})
}

// Clear implements Catalogue.
func (c StoreCatalogue) Clear(ctx context.Context, catalog, ring string) error {
	return c.swap(ctx, catalog, func(old Shown) (Shown, error) {
		return Shown{Schema: 1, Ring: ring, Load: old.Load}, nil
	})
}

// Read is what clients see; a catalog that nobody has written is empty.
func (c StoreCatalogue) Read(ctx context.Context, name string) (Shown, error) {
	s, _, err := c.read(ctx, name)
	return s, err
}

func (c StoreCatalogue) read(ctx context.Context, name string) (s Shown, cond bucket.Cond, err error) {
	if err := CheckCatalog(name); err != nil {
		return s, cond, err
	}
	o, err := c.Records.Store.Get(ctx, c.Key(name), bucket.Range{})
	if bucket.Is(err, bucket.NotFound) {
		return Shown{Schema: 1, Ring: c.Records.Ring}, bucket.IfAbsent(), nil
	}
	if err != nil {
		return s, cond, err
	}
	b, err := io.ReadAll(io.LimitReader(o.Body, maxShown+1))
	if err = errors.Join(err, o.Body.Close()); err != nil {
		return s, cond, err
	}
	if err := strict(b, maxShown, &s); err != nil || s.Schema != 1 || s.Ring != c.Records.Ring || s.Serving != (s.Entry != nil) {
		return s, cond, fmt.Errorf("%s is no catalog of ring %s (%w): look who can write the lane's store", c.Key(name), c.Records.Ring, err)
	}
	return s, bucket.IfIs(o.Version), nil
}

// swap replaces a catalog, and is content only when it reads back what it wrote.
func (c StoreCatalogue) swap(ctx context.Context, name string, change func(Shown) (Shown, error)) error {
	const tries = 6
	for try := range tries {
		old, cond, err := c.read(ctx, name)
		if err == nil {
			var next Shown
			if next, err = change(old); err == nil {
				err = c.put(ctx, name, old, next, cond)
			}
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errNotYet):
			return fmt.Errorf("catalog %s: %w", name, err)
		}
		if err := pause(ctx, time.Duration(try)*time.Second); err != nil {
			return err
		}
	}
	return fmt.Errorf("catalog %s: %d tries, and it does not read back what was written: another process writes it", name, tries)
}

// errNotYet says that a swap has to be looked at again.
var errNotYet = errors.New("not read back yet")

// put writes next in the place of old, unless that is what was read.
func (c StoreCatalogue) put(ctx context.Context, name string, old, next Shown, cond bucket.Cond) error {
	was, err := json.Marshal(old)
	if err != nil {
		return err
	}
	body, err := json.Marshal(next)
	if err != nil || !cond.Absent() && bytes.Equal(was, body) {
		return err
	}
	_, err = c.Records.Store.Put(ctx, c.Key(name), bytes.NewReader(body), cond)
	if err == nil || bucket.Is(err, bucket.Condition) || bucket.Is(err, bucket.Raced) || bucket.Is(err, bucket.Unknown) {
		return errNotYet
	}
	return err
}
