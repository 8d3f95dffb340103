//go:build !linux

package process

import (
	"errors"
	"time"
)

var errNotLinux = errors.New("processes of one's own can be told apart on Linux only: run the local platform on a Linux machine")

type entry struct {
	pid     int
	state   byte
	parent  int
	session int
	start   uint64
}

// Boot fails: see the package comment.
func Boot() (string, error) { return "", errNotLinux }

// Uptime fails: see the package comment.
func Uptime() (time.Duration, error) { return 0, errNotLinux }

// Identify fails: see the package comment.
func Identify(int) (Identity, error) { return Identity{}, errNotLinux }

func stat(int) (entry, error) { return entry{}, errNotLinux }

func processes() ([]entry, error) { return nil, errNotLinux }

func carries(int, string) bool { return false }

func mentions(int, string, string) bool { return false }
