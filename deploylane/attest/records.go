package attest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// RecordsDiffer is a copy of the lane's store that does not hold the records that a release rests on, as they were.
type RecordsDiffer struct {
	Missing []string // keys
	Changed []string // also what is no regular file
}

func (e *RecordsDiffer) Error() string {
	what, names := "changed", e.Changed
	if len(names) == 0 {
		what, names = "missing", e.Missing
	}
	return fmt.Sprintf("the lane's records are not those that the release rests on: %d changed, %d missing (%s: %.120q); look who can write the lane's store", len(e.Changed), len(e.Missing), what, names[0])
}

// CheckRecords holds a copy of the lane's records, below dir under their keys, against the hashes that the statement names. Links
// that lead out of dir are not followed; what else lies there is left alone. The error is a *RecordsDiffer, or the system's.
func CheckRecords(s Statement, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	bad := &RecordsDiffer{}
	for _, r := range s.Predicate.Records {
		info, err := root.Lstat(r.Key)
		if errors.Is(err, fs.ErrNotExist) {
			bad.Missing = append(bad.Missing, r.Key)
			continue
		}
		if err != nil {
			return err
		}
		sum := ""
		if info.Mode().IsRegular() {
			if sum, err = hashFile(root, r.Key); err != nil {
				return err
			}
		}
		if sum != r.SHA256 {
			bad.Changed = append(bad.Changed, r.Key)
		}
	}
	if len(bad.Missing)+len(bad.Changed) > 0 {
		return bad
	}
	return nil
}
