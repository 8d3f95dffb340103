package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
)

// Class says what to do about an [Error]. The words are stable.
type Class string

const (
	AuthFailed      Class = "AuthFailed"      // the remote knows us not, or lets us not read
	HostKeyChanged  Class = "HostKeyChanged"  // known_hosts has another key for this host
	HostKeyUnknown  Class = "HostKeyUnknown"  // known_hosts has no key for this host
	RemoteNotFound  Class = "RemoteNotFound"  // nothing there under this name
	NotRepository   Class = "NotRepository"   // a folder, but not a Git repository
	BranchNotFound  Class = "BranchNotFound"  // the repository is there, the branch is not
	Offline         Class = "Offline"         // no answer, half an answer, a server error: try again later
	FetchDidNotMove Class = "FetchDidNotMove" // the branch moved over there and the fetch brought nothing
	TooLarge        Class = "TooLarge"        // a bound on sizes was crossed
	MissingObject   Class = "MissingObject"   // an object that another one names is not there: never the same as absent
	Corrupt         Class = "Corrupt"         // an object is there and is not what its name says
	Unsupported     Class = "Unsupported"     // a form of repository or address that is not read here
	NotAllowed      Class = "NotAllowed"      // an entry that may not lie there: a link, a submodule, an odd name
)

// Error is every error of this package that a person can do something about.
type Error struct {
	Class  Class
	Remote string // address without credentials; empty where none is concerned
	Text   string // what is wrong
	Hint   string // what to do next
	Err    error  // cause, may be nil
}

func (e *Error) Error() string {
	s := e.Text
	if e.Remote != "" {
		s = "git remote " + e.Remote + ": " + s
	}
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// trouble is the one place where an error of the transport becomes an Error.
func trouble(remote string, err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	e := &Error{Class: Offline, Remote: remote, Err: err}
	text := err.Error()
	switch {
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed),
		errors.Is(err, transport.ErrInvalidAuthMethod), strings.Contains(text, "unable to authenticate"),
		strings.Contains(text, "SSH agent"), strings.Contains(text, "SSH_AUTH_SOCK"):
		e.Class, e.Text = AuthFailed, "it does not accept these credentials"
		e.Hint = "check that the token or key exists, has not expired and may read this repository"
	case strings.Contains(text, "knownhosts: key mismatch"):
		e.Class, e.Text = HostKeyChanged, "its host key is not the one in known_hosts"
		e.Hint = "ask the host's owner whether the key was changed; only then replace the line in known_hosts"
	case strings.Contains(text, "knownhosts: key is unknown"), strings.Contains(text, "known_hosts file"):
		e.Class, e.Text = HostKeyUnknown, "its host key is not in known_hosts"
		e.Hint = "compare the key with what the host publishes and add it: ssh-keyscan HOST >> ~/.ssh/known_hosts"
	case errors.Is(err, transport.ErrRepositoryNotFound):
		e.Class, e.Text = RemoteNotFound, "no such repository"
		e.Hint = "check the address; hosts also say this when the repository is private and no token was given"
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		e.Class, e.Text, e.Hint = BranchNotFound, "the repository has no commit yet", "push a first commit"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		e.Text, e.Hint = "no answer in time", "it is asked again at the next poll"
	default:
		e.Text, e.Hint = "no usable answer ("+shorten(cause(err))+")", "it is asked again at the next poll"
	}
	return e
}

// cause is the part of a network error that helps a person.
func cause(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return "the answer was cut off"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		far := *op
		far.Source = nil // our own port: another one at each try, and no other trouble
		return far.Error()
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Error()
	}
	return err.Error()
}

// shorten makes foreign text fit for one line: at most 200 bytes, control characters escaped.
func shorten(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	s = fmt.Sprintf("%q", s)
	return s[1 : len(s)-1]
}

// nearest is the known word with the fewest edits from word, when they are at most a third of it; else "".
func nearest(word string, known []string) string {
	best, at := "", max(1, len(word)/3)+1
	for _, k := range known {
		if len(k) > 200 || len(word) > 200 {
			continue
		}
		if d := edits(word, k); d < at {
			best, at = k, d
		}
	}
	return best
}

func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			up := row[j]
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(up+1, row[j-1]+1, diag+cost)
			diag = up
		}
	}
	return row[len(b)]
}

// asClass returns a copy of the *Error inside err if it is of a class.
func asClass(err error, c Class) (*Error, bool) {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Class != c {
		return nil, false
	}
	copied := *e
	return &copied, true
}
