package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/deploylane"
	"github.com/headway-run/headway/deploylane/tag"
)

// attestationFile is the file beside a fetched model that says where it comes from.
const attestationFile = "attestation.dsse.json"

func newFetch(e env) *cobra.Command {
	w := where{}
	c := &cobra.Command{Use: "fetch MODEL[@VERSION] FOLDER [REPOSITORY]", Short: "writes a released model's files, each held against its hash", Args: cobra.RangeArgs(2, 3),
		Long: "Writes the files of a release, by default of the version that is live, and beside them FOLDER." + attestationFile + ".\nThe folder must not be there yet; it appears whole or not at all.",
		RunE: func(c *cobra.Command, args []string) error {
			e := e.at(c)
			o, err := w.open(c.Context(), e, args[2:], false)
			if err != nil {
				return err
			}
			defer func() { _ = o.git.Close() }()
			model, version, _ := strings.Cut(args[0], "@")
			if version, err = o.wanted(c.Context(), model, version); err != nil {
				return err
			}
			err = o.fetch(c.Context(), e, model, version, filepath.Clean(e.path(args[1])))
			if s, ok := errors.AsType[*deploylane.Stop](err); ok {
				return &exit{code: exitRefused, err: s}
			}
			return err
		}}
	w.flags(c)
	return c
}

// wanted is the version that is fetched. One that rests on a key which was revoked is not.
func (o *opened) wanted(ctx context.Context, model, version string) (string, error) {
	if _, ok := o.conf.Models[model]; !ok {
		return "", &exit{code: exitError, err: fmt.Errorf("%s has no model %q", deploylane.File, clean(model))}
	}
	if version == "" {
		live, err := o.lane.Live(ctx, model)
		if err != nil {
			return "", err
		}
		if live == nil || live.Version == tag.None {
			return "", &exit{code: exitError, err: fmt.Errorf("no version of %s is live", model), hint: "name one: headway-lane fetch " + model + "@v1.0.0 FOLDER"}
		}
		version = live.Version
	} else if v, err := tag.ParseVersion(version); err != nil || v.String() != version {
		return "", &exit{code: exitError, err: fmt.Errorf("%q is no version", clean(version)), hint: "headway-lane status shows what is released"}
	}
	policy, entries, err := o.grounds(ctx, model)
	if err != nil {
		return "", err
	}
	if why := tag.Frozen(entries, policy, version); why != "" {
		return "", &exit{code: exitRefused, err: errors.New(why)}
	}
	return version, nil
}

// fetch writes a release into a folder beside the one that is meant, and gives it its name when all of it is there.
func (o *opened) fetch(ctx context.Context, e env, model, version, folder string) (err error) {
	if _, err := os.Lstat(folder); err == nil {
		return &exit{code: exitError, err: fmt.Errorf("%s is there already", folder), hint: "name a folder that is not there yet"}
	}
	part, err := os.MkdirTemp(filepath.Dir(folder), "."+filepath.Base(folder)+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(part))
		}
	}()
	into, err := os.OpenRoot(part) // no name of the store leads out of it
	if err != nil {
		return err
	}
	defer func() { _ = into.Close() }()
	files, attestation, err := o.lane.Fetch(ctx, model, version, func(name string) (io.WriteCloser, error) {
		if err := into.MkdirAll(path.Dir(name), 0o755); err != nil {
			return nil, err
		}
		return into.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	})
	if err != nil {
		return err
	}
	beside := folder + "." + attestationFile
	if err := appear(part, folder, beside, attestation); err != nil {
		return err
	}
	for _, f := range files {
		fmt.Fprintf(e.stdout, "%s  %s\n", f.SHA256, clean(f.Path))
	}
	fmt.Fprintf(e.stderr, "%s %s is in %s; %s says where it comes from (headway-lane verify)\n", model, version, folder, beside)
	return nil
}

// appear gives a folder its name, with the attestation beside it: both or neither. What lies there already stays as it is.
func appear(part, folder, beside string, attestation []byte) error {
	if err := os.Chmod(part, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return &exit{code: exitError, err: fmt.Errorf("%s is there already", beside), hint: "remove it, or name another folder"}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(attestation)
	if err = cmp.Or(err, f.Close()); err == nil {
		err = os.Rename(part, folder)
	}
	if err != nil {
		_ = os.Remove(beside)
	}
	return err
}
