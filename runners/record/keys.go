// Package record is the immutable half of what lies in the store: the key layout, and the JSON records under work/
// (spec, claim, receipt, open, manifest), each created once and never overwritten. The mutable half, the lease, is
// package witness. Decoders are strict about size and shape: everything in a bucket may have been written by a
// stranger's machine.
package record

import (
	"fmt"
	"strconv"
	"strings"
)

// Numbers in keys are padded to this many digits, so that lexical order is numeric order and a listing can start
// after one.
const digits = 8

func pad(n int64) string { return fmt.Sprintf("%0*d", digits, n) }

// WitnessPrefix holds all lease records, flat, so that one LIST page shows 1,000 of them.
const WitnessPrefix = "witness/"

// WitnessKey is the lease record of a work (64 hex digits).
func WitnessKey(work string) string { return WitnessPrefix + work }

// WorkPrefix holds everything immutable of one work.
func WorkPrefix(work string) string { return "work/" + work + "/" }

// SpecKey is written once, before the first dispatch.
func SpecKey(work string) string { return WorkPrefix(work) + "spec.json" }

// DispatchPrefix holds a work's claims and receipts.
func DispatchPrefix(work string) string { return WorkPrefix(work) + "dispatch/" }

// ClaimKey is created if absent before a launch goes out.
func ClaimKey(work string, n int64) string { return DispatchPrefix(work) + pad(n) + ".json" }

// ReceiptKey is the platform's answer, or why there is none.
func ReceiptKey(work string, n int64) string { return DispatchPrefix(work) + pad(n) + ".receipt.json" }

// RefusalKey is why a worker of this dispatch left before it took the lease.
func RefusalKey(work string, n int64) string { return DispatchPrefix(work) + pad(n) + ".refused.json" }

// ReleaseKey is the k-th answer of a platform to "is it closed?" for a dispatch.
func ReleaseKey(work string, n, k int64) string {
	return DispatchPrefix(work) + pad(n) + ".release." + pad(k) + ".json"
}

// ReleaseNumber reads k back from what ParsedKey.Rest says of a key made by ReleaseKey.
func ReleaseNumber(rest string) (k int64, ok bool) {
	num, ok := strings.CutPrefix(rest, "release.")
	num, cut := strings.CutSuffix(num, ".json")
	k, err := strconv.ParseInt(num, 10, 64)
	return k, ok && cut && err == nil && k > 0
}

// AttemptsPrefix holds all attempts of a work.
func AttemptsPrefix(work string) string { return WorkPrefix(work) + "attempt/" }

// AttemptPrefix is written by one attempt alone.
func AttemptPrefix(work string, a int64) string { return AttemptsPrefix(work) + pad(a) + "/" }

// OpenKey reserves an attempt's prefix: created if absent after capture, before the first other byte.
func OpenKey(work string, a int64) string { return AttemptPrefix(work, a) + "open.json" }

// EndKey is the attempt's own account of its end, created by the worker when it can (a killed one leaves none).
func EndKey(work string, a int64) string { return AttemptPrefix(work, a) + "end.json" }

// MilestonePrefix holds one snapshot.
func MilestonePrefix(work string, a, m int64) string {
	return AttemptPrefix(work, a) + "milestone/" + pad(m) + "/"
}

// MilestoneManifestKey is written last of a snapshot.
func MilestoneManifestKey(work string, a, m int64) string {
	return MilestonePrefix(work, a, m) + "manifest.json"
}

// ResultPrefix holds an attempt's result.
func ResultPrefix(work string, a int64) string { return AttemptPrefix(work, a) + "result/" }

// ResultManifestKey is written last of a result.
func ResultManifestKey(work string, a int64) string { return ResultPrefix(work, a) + "manifest.json" }

// LogPrefix holds immutable log segments named by their byte offset; EventPrefix likewise.
func LogPrefix(work string, a int64) string   { return AttemptPrefix(work, a) + "log/" }
func EventPrefix(work string, a int64) string { return AttemptPrefix(work, a) + "events/" }

// SegmentKey names the segment that starts at offset (padded to 16 digits, since logs are long).
func SegmentKey(prefix string, offset int64) string { return fmt.Sprintf("%s%016d", prefix, offset) }

// SegmentOffset reads the offset back from a segment's key.
func SegmentOffset(key string) (int64, bool) {
	i := strings.LastIndexByte(key, '/')
	n, err := strconv.ParseInt(key[i+1:], 10, 64)
	return n, err == nil && n >= 0
}

// CodeKey is a content-addressed code bundle, named by the Git tree hash of its folder.
func CodeKey(tree string) string { return "code/" + tree + ".tar.zst" }

// PlatformKey is a platform's shared state (conditional writes).
func PlatformKey(name string) string { return "platform/" + name }

// ParsedKey says which record a key under work/ is.
type ParsedKey struct {
	Work     string
	Dispatch int64 // claim, receipt or release
	Attempt  int64
	Rest     string // after the number: "json", "receipt.json", "open.json", "milestone/00000001/manifest.json", …
}

// Parse reads a key under work/ back. ok is false for any other key.
func Parse(key string) (p ParsedKey, ok bool) {
	rest, found := strings.CutPrefix(key, "work/")
	if !found {
		return p, false
	}
	p.Work, rest, found = strings.Cut(rest, "/")
	if !found || p.Work == "" {
		return p, false
	}
	if tail, is := strings.CutPrefix(rest, "dispatch/"); is {
		num, kind, cut := strings.Cut(tail, ".")
		n, err := strconv.ParseInt(num, 10, 64)
		p.Dispatch, p.Rest = n, kind
		return p, cut && err == nil && n > 0
	}
	if tail, is := strings.CutPrefix(rest, "attempt/"); is {
		num, kind, cut := strings.Cut(tail, "/")
		n, err := strconv.ParseInt(num, 10, 64)
		p.Attempt, p.Rest = n, kind
		return p, cut && err == nil && n > 0
	}
	p.Rest = rest
	return p, rest != ""
}
