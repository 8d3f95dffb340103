package forge

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxHook is the largest delivery that is read, in bytes: whoever listens bounds its reader by it.
const MaxHook = 1 << 20

// Bounds of what is kept of a delivery, in bytes.
const (
	maxAddress = 2048
	maxRef     = 1024
	maxName    = 128
)

// Wake is what a delivery asks for: a look at a repository, sooner than the next poll. Nothing in it is a fact: who knows
// the secret may ask, and what is true is read from the repository itself.
type Wake struct {
	Forge        Kind
	Event        string   // as the forge calls it: push, pull_request, ping, merge_request, …
	Delivery     string   // the forge's id of it, from a header that no signature covers; "": it gave none
	Digest       string   // SHA-256 of the body, which the signature covers (GitLab's token covers nothing)
	Repositories []string // the addresses that the forge gives for the repository, without credentials; may be empty
	Ref          string   // refs/heads/main: the branch or tag that moved, a pull request's base; "": of no ref, or of all
}

// HookError is why a delivery is refused, with the status of HTTP to answer with. Its text says what to set right at the
// forge, and holds nothing of the delivery that could be a secret.
type HookError struct {
	Status int // 400, 401, 413
	Text   string
}

func (e *HookError) Error() string { return e.Text }

func refusef(status int, format string, args ...any) error {
	return &HookError{Status: status, Text: fmt.Sprintf(format, args...)}
}

// dialect is how one forge words a delivery.
type dialect struct {
	kind                       Kind
	event, delivery, signature string // headers
	prefix                     string // of the signature
}

// dialects is the table of those that sign. Gitea and Forgejo send GitHub's headers beside their own, so they come first.
var dialects = []dialect{
	{Gitea, "X-Forgejo-Event", "X-Forgejo-Delivery", "X-Forgejo-Signature", ""},
	{Gitea, "X-Gitea-Event", "X-Gitea-Delivery", "X-Gitea-Signature", ""},
	{GitHub, "X-Github-Event", "X-Github-Delivery", "X-Hub-Signature-256", "sha256="},
}

// Hook reads one delivery of a webhook. Who sent it is checked before anything of the body is looked at: HMAC-SHA256 of the
// raw body (GitHub, Gitea, Forgejo) or a token (GitLab), in constant time, against every secret; an empty secret fits
// nothing. Errors are *HookError.
func Hook(header http.Header, body []byte, secrets [][]byte) (Wake, error) {
	if len(body) > MaxHook {
		return Wake{}, refusef(http.StatusRequestEntityTooLarge, "a delivery of %d bytes, at most %d are read", len(body), MaxHook)
	}
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(s []byte) bool { return len(s) == 0 })
	if len(secrets) == 0 {
		return Wake{}, refusef(http.StatusUnauthorized, "no secret is set here, so nobody can be believed: set one here and the same at the forge")
	}
	w := Wake{}
	if header.Get("X-Gitlab-Event") != "" {
		token, err := single(header, "X-Gitlab-Token")
		if err != nil {
			return Wake{}, err
		}
		if !anyFits(secrets, func(s []byte) bool { return sameSecret([]byte(token), s) }) {
			return Wake{}, refusef(http.StatusUnauthorized, "the token of the delivery is not the secret that is set here: set the same one at the webhook (secret token)")
		}
		w.Forge, w.Event = GitLab, name(header.Get("X-Gitlab-Event"))
		for _, h := range []string{"Idempotency-Key", "X-Gitlab-Event-Uuid"} {
			if w.Delivery == "" {
				w.Delivery = name(header.Get(h))
			}
		}
	} else {
		d, err := signed(header, body, secrets)
		if err != nil {
			return Wake{}, err
		}
		w.Forge, w.Event, w.Delivery = d.kind, name(header.Get(d.event)), name(header.Get(d.delivery))
	}
	digest := sha256.Sum256(body)
	w.Digest = hex.EncodeToString(digest[:])
	payload, err := payloadOf(header, body)
	if err != nil {
		return Wake{}, err
	}
	return w, w.read(payload)
}

// signed checks the signature of a delivery from a forge that signs.
func signed(header http.Header, body []byte, secrets [][]byte) (dialect, error) {
	for _, d := range dialects {
		if header.Get(d.event) == "" {
			continue
		}
		text, err := single(header, d.signature)
		if err != nil {
			return d, err
		}
		hexes, ok := strings.CutPrefix(text, d.prefix)
		sum, err := hex.DecodeString(hexes)
		if !ok || err != nil || len(sum) != sha256.Size {
			return d, refusef(http.StatusUnauthorized, "%s holds no SHA-256 signature", d.signature)
		}
		fits := anyFits(secrets, func(s []byte) bool {
			mac := hmac.New(sha256.New, s)
			mac.Write(body)
			return hmac.Equal(sum, mac.Sum(nil))
		})
		if !fits {
			return d, refusef(http.StatusUnauthorized, "the signature in %s does not fit the secret that is set here: set the same one at the webhook", d.signature)
		}
		return d, nil
	}
	return dialect{}, refusef(http.StatusBadRequest, "this is no delivery of GitHub, GitLab, Gitea or Forgejo: none of their event headers is there")
}

// anyFits tries every secret, so that how long it takes does not tell which one fits.
func anyFits(secrets [][]byte, fits func([]byte) bool) bool {
	found := false
	for _, s := range secrets {
		if fits(s) {
			found = true
		}
	}
	return found
}

// sameSecret compares without telling by its time how much is right, or how long the right one is.
func sameSecret(a, b []byte) bool {
	x, y := sha256.Sum256(a), sha256.Sum256(b)
	return hmac.Equal(x[:], y[:])
}

// single is a header that must be there once: of two, what is between here and the forge could pick another than we do.
func single(header http.Header, key string) (string, error) {
	switch v := header.Values(key); {
	case len(v) == 1 && v[0] != "":
		return v[0], nil
	case len(v) > 1:
		return "", refusef(http.StatusBadRequest, "%s stands there %d times", key, len(v))
	}
	return "", refusef(http.StatusUnauthorized, "the delivery is not signed (no %s): set the secret at the webhook", key)
}

// payloadOf is the JSON of a delivery, which GitHub by default sends as a form with one field.
func payloadOf(header http.Header, body []byte) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return body, nil // whatever it calls itself, it is read as JSON or refused
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || len(form["payload"]) != 1 {
		return nil, refusef(http.StatusBadRequest, "a form without one field payload: choose application/json at the webhook")
	}
	return []byte(form.Get("payload")), nil
}

// delivery is what the bodies of the forges have in common, under the names that each gives it.
type delivery struct {
	Ref        string    `json:"ref"`
	RefType    string    `json:"ref_type"` // create and delete name a branch or a tag, and the kind of it here
	Repository addresses `json:"repository"`
	Project    addresses `json:"project"`
	Pull       struct {
		Base struct {
			Ref string `json:"ref"`
		} `json:"base"`
	} `json:"pull_request"`
	Attributes struct {
		Target string `json:"target_branch"`
	} `json:"object_attributes"`
}

type addresses struct {
	Clone   string `json:"clone_url"`
	SSH     string `json:"ssh_url"`
	HTML    string `json:"html_url"`
	GitHTTP string `json:"git_http_url"`
	GitSSH  string `json:"git_ssh_url"`
	Web     string `json:"web_url"`
}

// read fills in what the body says.
func (w *Wake) read(payload []byte) error {
	var d delivery
	if err := json.Unmarshal(payload, &d); err != nil {
		*w = Wake{}
		return refusef(http.StatusBadRequest, "the body is not the JSON of a delivery")
	}
	ref := d.Ref
	switch {
	case d.Pull.Base.Ref != "":
		ref = "refs/heads/" + d.Pull.Base.Ref
	case d.Attributes.Target != "":
		ref = "refs/heads/" + d.Attributes.Target
	case ref != "" && d.RefType == "branch":
		ref = "refs/heads/" + ref
	case ref != "" && d.RefType == "tag":
		ref = "refs/tags/" + ref
	}
	if ref != "" && (!printable(ref, maxRef) || !strings.HasPrefix(ref, "refs/")) {
		ref = "" // of no ref that can be: then it is a wake of all
	}
	w.Ref = ref
	for _, a := range []addresses{d.Repository, d.Project} {
		for _, s := range []string{a.Clone, a.SSH, a.GitHTTP, a.GitSSH, a.HTML, a.Web} {
			if s, ok := withoutUser(s); ok && !slices.Contains(w.Repositories, s) {
				w.Repositories = append(w.Repositories, s)
			}
		}
	}
	return nil
}

// withoutUser is an address without a password or a token; false: it is none.
func withoutUser(s string) (string, bool) {
	if !printable(s, maxAddress) {
		return "", false
	}
	if !strings.Contains(s, "://") {
		user, _, named := strings.Cut(s, "@") // user@host:path, or a folder
		return s, !named || !strings.Contains(user, ":")
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return "", false
	}
	if _, secret := u.User.Password(); secret || u.Scheme != "ssh" {
		u.User = nil
	}
	u.RawQuery, u.Fragment = "", ""
	return u.String(), true
}

// About reports whether the delivery is of the repository at this address, in whatever form either is written. It
// compares host and path alone: the same repository has other schemes, users and ports for https and for ssh.
func (w Wake) About(remote string) bool {
	want := place(remote)
	return want != "" && slices.ContainsFunc(w.Repositories, func(s string) bool { return place(s) == want })
}

// place is host and path of a repository's address, as they are compared; "": it has no host.
func place(s string) string {
	host, at := "", ""
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		if err != nil {
			return ""
		}
		host, at = u.Hostname(), u.Path
	} else { // user@host:path
		before, after, ok := strings.Cut(s, ":")
		if !ok || strings.Contains(before, "/") {
			return ""
		}
		host, at = before[strings.LastIndex(before, "@")+1:], after
	}
	if at = strings.TrimSuffix(strings.Trim(path.Clean("/"+at), "/"), ".git"); host == "" || at == "" {
		return ""
	}
	return strings.ToLower(host + "/" + at)
}

// name is a short word of a header; "": it is none.
func name(s string) string {
	if !printable(s, maxName) {
		return ""
	}
	return s
}

// printable: some text, on one line, of at most max bytes.
func printable(s string, max int) bool {
	return s != "" && len(s) <= max && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
