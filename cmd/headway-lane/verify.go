package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/deploylane"
	"github.com/headway-run/headway/deploylane/attest"
)

func newVerify(e env) *cobra.Command {
	var keys, files, records, twin string
	c := &cobra.Command{Use: "verify FILE|URL", Short: "checks an attestation, and with --files the model itself; needs no store and no Git", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			e := e.at(c)
			if keys == "" {
				return &exit{code: exitError, err: errors.New("whose signature counts?"), hint: "--keys lane-key.pub: the public key of the lane that made it"}
			}
			k, err := os.ReadFile(e.path(keys))
			if err != nil {
				return err
			}
			known, err := attest.ParseKeys(k)
			if err != nil {
				return &exit{code: exitError, err: fmt.Errorf("%s: %w", keys, err)}
			}
			v, envelope, err := e.verified(c.Context(), args[0], known)
			if err != nil {
				return err
			}
			if files != "" {
				if err := attest.CheckFiles(v.Statement, e.path(files)); err != nil {
					return &exit{code: exitRefused, err: err}
				}
			}
			checked := ""
			if records != "" {
				records = objectsOf(e.path(records))
				if err := deploylane.CheckCopy(c.Context(), v, envelope, known, records); err != nil {
					return &exit{code: exitRefused, err: err}
				}
				checked = fmt.Sprintf("records checked in %s: %d that it names, the release's own, and what lies there of its targets' answers and the pointer's places\n", clean(records), len(v.Predicate.Records))
			}
			shown := ""
			if twin != "" {
				if shown, err = e.twins(c.Context(), v, twin, known); err != nil {
					return err
				}
			}
			e.attested(v)
			fmt.Fprint(e.stdout, checked+shown)
			return nil
		}}
	c.Flags().StringVar(&keys, "keys", "", "file with the public keys whose signature counts")
	c.Flags().StringVar(&files, "files", "", "folder with the model's files, to be held against the attestation")
	c.Flags().StringVar(&records, "records", "", "a folder store of the lane, or a copy of any store's objects, whose records are to be held against the attestation")
	c.Flags().StringVar(&twin, "twin", "", "attestation of another run of the same pinned work: do the two have the same bytes, and what does that show")
	return c
}

// objectsOf: who names a folder store means its objects.
func objectsOf(dir string) string {
	below := filepath.Join(dir, "objects")
	if _, err := os.Lstat(filepath.Join(dir, "lane")); errors.Is(err, fs.ErrNotExist) {
		if i, err := os.Stat(below); err == nil && i.IsDir() {
			return below
		}
	}
	return dir
}

func (e env) verified(ctx context.Context, from string, known []attest.Key) (attest.Verified, []byte, error) {
	body, err := e.fetch(ctx, from)
	if err != nil {
		return attest.Verified{}, nil, err
	}
	v, err := attest.Verify(body, known)
	if err != nil {
		return v, nil, &exit{code: exitRefused, err: err}
	}
	return v, body, nil
}

// twins compares two releases, and says what that shows.
func (e env) twins(ctx context.Context, v attest.Verified, twin string, known []attest.Key) (string, error) {
	other, _, err := e.verified(ctx, twin, known)
	if err != nil {
		return "", err
	}
	g, err := attest.CompareReleases(v.Statement, other.Statement)
	if err != nil {
		return "", &exit{code: exitRefused, err: err}
	}
	text := fmt.Sprintf("%s %s and %s %s: %s", v.Predicate.Model, v.Predicate.Version, other.Predicate.Model, other.Predicate.Version, g.Text)
	if !g.Identical {
		return "", &exit{code: exitRefused, err: errors.New(text)}
	}
	return clean(text) + "\n", nil
}

// attested prints what was verified.
func (e env) attested(v attest.Verified) {
	p := v.Predicate
	fmt.Fprintf(e.stdout, "%s %s: good, signed by %s\n", clean(p.Model), clean(p.Version), v.Key.ID)
	fmt.Fprintf(e.stdout, "tag %s on commit %s, signed by %s (%s)\n", short(p.Tag.Object), short(p.Tag.Commit), clean(p.Tag.Signer), clean(p.Tag.Key))
	for _, a := range p.AllApprovals() {
		fmt.Fprintf(e.stdout, "approved by %s (%s) with tag %s\n", clean(a.Signer), clean(a.Key), short(a.Object))
	}
	fmt.Fprintf(e.stdout, "generation 2 %s of generation 1 %s, spread check %s over %d seeds, %s %g\n", short(p.Retrained.Work), short(p.Candidate.Work), p.Spread.Verdict, len(p.Seeds), clean(p.Score.Name), p.Score.Value)
	for _, s := range v.Subject {
		fmt.Fprintf(e.stdout, "%s  %s\n", s.Digest.SHA256, clean(s.Name))
	}
}

// fetchTimeout bounds how long a server may take with an attestation.
const fetchTimeout = time.Minute

// fetch reads an attestation from a file or a URL: https, or http from this very machine, also where a server points elsewhere.
// It reads one byte more than an attestation may have, so that what is longer is seen to be.
func (e env) fetch(ctx context.Context, from string) ([]byte, error) {
	if !strings.Contains(from, "://") {
		f, err := os.Open(e.path(from))
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		return io.ReadAll(io.LimitReader(f, attest.MaxEnvelope+1))
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, errors.New("this is no URL: expected https://…, or a file")
	}
	if err := mayFetch(req.URL); err != nil {
		return nil, err
	}
	client := &http.Client{CheckRedirect: func(next *http.Request, past []*http.Request) error {
		if len(past) > 5 {
			return errors.New("the server points elsewhere again and again")
		}
		return mayFetch(next.URL)
	}}
	res, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which may hold a token
		}
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %s", clean(res.Status))
	}
	return io.ReadAll(io.LimitReader(res.Body, attest.MaxEnvelope+1))
}

// mayFetch: the signature would show what somebody changed on the way; who asks for which model is nobody's business all the same.
func mayFetch(u *url.URL) error {
	ip := net.ParseIP(u.Hostname())
	switch {
	case u.Scheme == "https" && u.Host != "", u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()):
		return nil
	}
	return fmt.Errorf("%s://%s is not read: expected https://…, http:// from this machine, or a file", clean(u.Scheme), clean(u.Host))
}
