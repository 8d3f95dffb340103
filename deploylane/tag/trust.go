package tag

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// maxTrusted bounds lane/allowed_signers and lane/policy.yaml, bytes.
const maxTrusted = 256 << 10

// Untrusted says why nobody's signature counts at present. It is no verdict on any tag.
type Untrusted struct {
	File string
	Text string
	Fix  string
}

func (u *Untrusted) Error() string {
	return fmt.Sprintf("%s %s, so nothing that it says counts: %s", u.File, u.Text, u.Fix)
}

// trust is who may sign, and since which commits.
type trust struct {
	verify              Verify
	policy              *Policy
	signersAt, policyAt string // commits that changed the files last
}

// readTrust reads both files from the protected branch. Each counts only when its last change is signed by a root key.
func readTrust(ctx context.Context, git Git, keys Keys, roots []string, tip string) (*trust, error) {
	t := &trust{}
	b, at, err := rooted(ctx, git, keys, roots, tip, SignersFile)
	if err != nil {
		return nil, err
	}
	if t.verify, err = keys.Signers(b); err != nil {
		return nil, &Untrusted{SignersFile, "cannot be read (" + clip(err.Error()) + ")", "mend it, and let a root key sign the commit"}
	}
	t.signersAt = at
	if b, at, err = rooted(ctx, git, keys, roots, tip, PolicyFile); err != nil {
		return nil, err
	}
	if t.policy, err = ReadPolicy(b); err != nil {
		return nil, &Untrusted{PolicyFile, "cannot be read (" + err.Error() + ")", "mend it, and let a root key sign the commit"}
	}
	t.policyAt = at
	return t, nil
}

// Rooted reads a file of a commit, if its last change before that commit is signed by a root key: one whose fingerprint is
// among roots. *Untrusted says why it is not, or that there is none.
func Rooted(ctx context.Context, git Git, keys Keys, roots []string, commit, file string) ([]byte, error) {
	b, _, err := rooted(ctx, git, keys, roots, commit, file)
	return b, err
}

func rooted(ctx context.Context, git Git, keys Keys, roots []string, tip, file string) ([]byte, string, error) {
	c, err := git.LastChange(ctx, tip, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", &Untrusted{file, "is not there", "add it in a commit that a root key signs"}
	}
	if err != nil {
		return nil, "", err
	}
	if err := checkRoot(c, keys, roots, file); err != nil {
		return nil, "", err
	}
	b, err := git.File(ctx, tip, file, maxTrusted)
	if errors.Is(err, fs.ErrNotExist) {
		err = &Untrusted{file, fmt.Sprintf("is no plain file of at most %d KiB", maxTrusted>>10), "write it anew in a commit that a root key signs"}
	}
	return b, c.Commit, err
}

// checkRoot says why the last change of a file does not count.
func checkRoot(c Change, keys Keys, roots []string, file string) error {
	fix := "let a root key (one that the lane's own configuration lists) sign a commit that changes the file"
	if c.Beside != "" {
		return &Untrusted{file, fmt.Sprintf("was changed in commit %s, and beside it in %s, so which of the two counts is not said", short(c.Commit), short(c.Beside)), fix}
	}
	if len(c.Signature) == 0 {
		return &Untrusted{file, fmt.Sprintf("was last changed in commit %s, which is not signed", short(c.Commit)), fix}
	}
	print, err := keys.Root(c.Payload, c.Signature)
	if err != nil {
		return &Untrusted{file, fmt.Sprintf("was last changed in commit %s, whose signature does not count (%s)", short(c.Commit), clip(err.Error())), fix}
	}
	if print == "" || !slices.Contains(roots, print) {
		return &Untrusted{file, fmt.Sprintf("was last changed in commit %s, signed by key %s, which is no root key", short(c.Commit), clip(print)), fix}
	}
	return nil
}

// wentBack says that the branch has an older state of the files than an earlier verdict was made under.
func wentBack(ctx context.Context, git Git, entries []Entry, t *trust) error {
	last := Entry{}
	for _, e := range entries {
		if e.Signers != "" {
			last = e
		}
	}
	for _, f := range []struct{ file, old, now string }{{SignersFile, last.Signers, t.signersAt}, {PolicyFile, last.Policy, t.policyAt}} {
		if f.old == "" || f.old == f.now {
			continue
		}
		ok, err := git.Descends(ctx, f.old, f.now)
		if err != nil {
			return err
		}
		if !ok {
			return &Untrusted{f.file, fmt.Sprintf("is that of commit %s, which does not follow commit %s, under which tags were judged before", short(f.now), short(f.old)),
				"bring the protected branch back; its history must not be rewritten"}
		}
	}
	return nil
}
