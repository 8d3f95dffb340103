package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/examples"
	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket/open"
)

func newInit(e env) *cobra.Command {
	var store string
	c := &cobra.Command{Use: "init [DIR]", Short: "makes headway.yaml, a first plan with its program, and a workflow for pull requests", Args: cobra.MaximumNArgs(1),
		Long: "Makes headway.yaml, a first plan with its program, and a workflow for pull requests. With --store the plan names that store\ninstead of a folder beside it, and a dir:/// store is made; in a folder that has headway.yaml already, only the store that it\nnames is made.",
		RunE: func(c *cobra.Command, args []string) error {
			dir := e.at(c).dir
			if len(args) == 1 {
				if filepath.IsAbs(args[0]) {
					dir = args[0]
				} else {
					dir = filepath.Join(dir, args[0])
				}
			}
			return initialise(c.Context(), e, dir, store)
		}}
	c.Flags().StringVar(&store, "store", "", "dir:///PATH or s3://BUCKET/PREFIX?endpoint=…&region=… instead of a folder beside the plans")
	return c
}

// makeStore makes a directory store, which no other verb does: a disk that is not mounted must not look like a new store.
func makeStore(ctx context.Context, e env, url string) error {
	if !strings.HasPrefix(url, "dir:") {
		return nil
	}
	if _, err := open.URL(ctx, url, open.Options{Create: true}); err != nil {
		return storeFailure(url, err)
	}
	fmt.Fprintf(e.stdout, "made   the store %s\n", withoutSecrets(url))
	return nil
}

// initialise writes the first files. It overwrites nothing: a file that is there stays, and is named.
func initialise(ctx context.Context, e env, dir, store string) error {
	if info, err := os.Stat(filepath.Join(dir, plan.ConfigFile)); err == nil {
		if e.dir = dir; store != "" && !info.IsDir() {
			p, err := readProject(ctx, e, "")
			if err == nil && p.unusable() == nil && p.plan.Config.Store == store {
				return makeStore(ctx, e, store)
			}
		}
		what := "a file"
		if info.IsDir() {
			what = "a folder"
		}
		return &exit{code: exitError, err: fmt.Errorf("%s is there already (%s): init makes new repositories and changes none", filepath.Join(dir, plan.ConfigFile), what),
			hint: "headway validate checks what is there"}
	}
	files, err := firstFiles(store)
	if err != nil {
		return err
	}
	if err := makeStore(ctx, e, store); err != nil {
		return err
	}
	for _, f := range files {
		to := filepath.Join(dir, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if os.IsExist(err) {
			fmt.Fprintf(e.stdout, "kept   %s\n", f.path)
			continue
		}
		if err != nil {
			return err
		}
		_, err = out.WriteString(f.body)
		if cerr := out.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "made   %s\n", f.path)
	}
	if err := ignoreState(dir); err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "\nnext: commit these files, then run headway plan and headway apply --wait\n")
	return nil
}

type firstFile struct{ path, body string }

func firstFiles(store string) ([]firstFile, error) {
	var out []firstFile
	hello, err := fs.Sub(examples.Hello, "hello")
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(hello, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(hello, path)
		body := string(b)
		if before, after, ok := strings.Cut(body, "store: embedded"); ok && path == plan.ConfigFile && store != "" {
			_, after, _ = strings.Cut(after, "\n")
			body = before + fmt.Sprintf("store: %q\n", store) + after
		}
		out = append(out, firstFile{path, body})
		return err
	})
	out = append(out, firstFile{".github/workflows/headway.yml", examples.Workflow},
		firstFile{stateFolder + "/plan.schema.json", string(plan.Schema())},
		firstFile{stateFolder + "/headway.schema.json", string(plan.ConfigSchema())})
	return out, err
}

// ignoreState keeps the state folder, and results that were fetched, out of Git.
func ignoreState(dir string) error {
	name := filepath.Join(dir, ".gitignore")
	b, err := os.ReadFile(name)
	if err != nil && !notExist(err) {
		return err
	}
	lines := strings.Split(string(b), "\n")
	for _, want := range []string{"/" + stateFolder + "/", "/result-*/"} {
		if slices.ContainsFunc(lines, func(l string) bool { return strings.Trim(strings.TrimSpace(l), "/") == strings.Trim(want, "/") }) {
			continue
		}
		if len(b) > 0 && b[len(b)-1] != '\n' {
			b = append(b, '\n')
		}
		b = append(b, want+"\n"...)
	}
	return os.WriteFile(name, b, 0o644)
}
