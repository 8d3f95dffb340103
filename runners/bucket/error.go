package bucket

import (
	"errors"
	"fmt"
)

// Code says what an error means for the caller. It is a closed set: every switch over it names all of them.
type Code uint8

const (
	// Unknown: no answer, or one that does not say whether the write happened (cut connection, timeout, 5xx). The
	// write may have been applied or may still be. Only a read that finds the writer's own mark settles it.
	Unknown Code = iota
	// NotFound: the key does not exist (Get).
	NotFound
	// Condition: the condition did not hold (412). Surely not written by this request.
	Condition
	// Raced: another request on this key got in the way (409). Surely not written by this request, and nothing is said
	// about who holds the key: ask again with the same condition.
	Raced
	// Gone: IfIs on a key that does not exist (404). Surely not written.
	Gone
	// Throttled: asked to slow down (429, 503 SlowDown). Surely not written; try later.
	Throttled
	// Denied: credentials missing, wrong, expired, or without the right (401, 403).
	Denied
	// NoBucket: the bucket or the store's folder does not exist, or is in another region.
	NoBucket
	// Full: no space or over quota (507, ENOSPC, EDQUOT).
	Full
	// BadKey: a key that this store cannot hold, or a malformed request (400). A defect of the caller.
	BadKey
	// Unsupported: the store does not offer this (501).
	Unsupported
)

// Certain reports whether a write that answered c surely did not happen. Only Unknown is uncertain.
func (c Code) Certain() bool { return c != Unknown }

// String returns the code's name.
func (c Code) String() string {
	names := [...]string{"Unknown", "NotFound", "Condition", "Raced", "Gone", "Throttled", "Denied", "NoBucket", "Full", "BadKey", "Unsupported"}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("Code(%d)", uint8(c))
}

// Error is every error of a Bucket.
type Error struct {
	Op   string // get, put, list, delete, presign
	Key  string
	Code Code
	Hint string // what to do next, for people; may be empty
	Err  error  // cause; may be nil
}

func (e *Error) Error() string {
	s := fmt.Sprintf("store: %s %s: %s", e.Op, e.Key, e.Code)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of an error of a Bucket; an error of any other kind is Unknown, the cautious reading.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Unknown
}

// Is reports whether err is an error of a Bucket with this code.
func Is(err error, c Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == c
}
