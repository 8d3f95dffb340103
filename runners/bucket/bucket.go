// Package bucket is the port to the one thing headway trusts: an object store with single-key conditional writes.
// Five verbs, one condition type, and three kinds of answer: surely done (nil), surely not done, and unknown.
//
// What a caller may rely on is the least common denominator of s3.md §1.3: PUT if absent, PUT if the version
// matches, GET and LIST that show the version, all linearizable for one key. Nothing else: no conditional delete,
// no rename, no server time except as a hint. Adapters live below (dir, mem, s3); buckettest is the one suite that
// all of them pass; decorators wrap the port and are the port.
package bucket

import (
	"context"
	"io"
	"time"
)

// Version is the store's token for one content of one key (an ETag on S3), kept byte for byte as received. It is
// opaque: never computed, never parsed. On most stores it is a hash of the bytes, so equal bytes have equal
// versions; a writer that needs distinct versions must make the bytes distinct.
type Version string

// Cond is the condition of a Put. The zero value means "whatever is there".
type Cond struct {
	kind condKind
	is   Version
}

type condKind uint8

const (
	condAlways condKind = iota
	condAbsent
	condIs
)

// Always writes unconditionally. Only for keys that have one writer by construction.
func Always() Cond { return Cond{} }

// IfAbsent writes only when the key does not exist (If-None-Match: *).
func IfAbsent() Cond { return Cond{kind: condAbsent} }

// IfIs writes only when the key's current version is v (If-Match: v).
func IfIs(v Version) Cond { return Cond{kind: condIs, is: v} }

// Absent reports whether the condition is IfAbsent.
func (c Cond) Absent() bool { return c.kind == condAbsent }

// Is returns the version of IfIs, and whether the condition is one.
func (c Cond) Is() (Version, bool) { return c.is, c.kind == condIs }

// Body is what a Put sends: readable from any offset and of known size, so that a retry sends the same bytes and a
// large one can go up in parts. *bytes.Reader, *strings.Reader and *io.SectionReader are bodies.
type Body interface {
	io.ReaderAt
	Size() int64
}

// Range asks for a part of an object. The zero value is all of it.
type Range struct {
	Offset int64 // first byte
	Length int64 // bytes; 0 means to the end
}

// Info is what a store says of an object.
type Info struct {
	Key      string
	Size     int64
	Version  Version
	Modified time.Time // the store's own stamp (Last-Modified); resolution of a second on S3
}

// Object is an open object. The caller closes Body. Date is the store's own clock at the answer (the Date header;
// zero where the store has none): together with Modified it gives an age in one clock domain.
type Object struct {
	Info
	Body io.ReadCloser
	Date time.Time
}

// Page is one answer of List: keys in lexical (byte) order.
type Page struct {
	Items []Info
	More  bool // there are keys after the last one
	Date  time.Time
}

// Method is what a presigned URL allows.
type Method string

const (
	MethodGet Method = "GET"
	MethodPut Method = "PUT"
)

// Bucket is the port. Every error is, or wraps, an *Error whose Code says which of the three kinds of answer it is.
// All methods may be called from any goroutine. Keys are slash-separated, without "." or ".." parts, at most 1,024
// bytes; no key of ours is a folder of another.
type Bucket interface {
	// Get opens an object, or a range of it. Absent: NotFound. The Body may be cut short by the network: readers
	// that need the whole check the size or a hash.
	Get(ctx context.Context, key string, r Range) (*Object, error)

	// Put writes the whole object or nothing, once: a conditional Put is sent a single time, whatever happens.
	// Condition (412), Raced (409) and Gone (404 to IfIs) mean that this request wrote nothing; Unknown means that it
	// may have, or may still do so later.
	Put(ctx context.Context, key string, body Body, c Cond) (Version, error)

	// List returns at most limit (1..1,000; 0 means 1,000) objects whose key has the prefix and is greater than after.
	List(ctx context.Context, prefix, after string, limit int) (*Page, error)

	// Delete removes the key, without a condition; an absent key is not an error. No witness is ever deleted.
	Delete(ctx context.Context, key string) error

	// Presign returns a URL that carries the right to one method on one key until ttl has passed, or Unsupported.
	// The holder may add If-Match or If-None-Match itself.
	Presign(ctx context.Context, m Method, key string, ttl time.Duration) (string, error)
}
