package access_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/access"
)

func TestAt(t *testing.T) {
	for url, want := range map[string]access.Place{
		"s3://acme":               {Bucket: "acme"},
		"s3://acme/":              {Bucket: "acme"},
		"s3://acme/a/b/?region=x": {Bucket: "acme", Prefix: "a/b/"},
		"s3://acme/a?endpoint=http%3A%2F%2Flocalhost": {Bucket: "acme", Prefix: "a/"},
	} {
		if got, err := access.At(url); err != nil || got != want {
			t.Errorf("%s: %+v, %v", url, got, err)
		}
	}
	for url, want := range map[string]string{
		"dir:///var/headway": "a folder's owner and mode say who writes it",
		"s3:///a":            "expected s3://BUCKET/PREFIX",
		"s3://acme/a*":       "a character that a policy reads as a pattern",
		"s3://acme/$%7Bx%7D": "a character that a policy reads as a pattern",
	} {
		if _, err := access.At(url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestStoresThatLieInOneAnotherAreRefused(t *testing.T) {
	for _, c := range [][2]access.Place{
		{{Bucket: "b"}, {Bucket: "b"}},
		{{Bucket: "b"}, {Bucket: "b", Prefix: "lane/"}},
		{{Bucket: "b", Prefix: "lane/x/"}, {Bucket: "b", Prefix: "lane/"}},
	} {
		if p, err := access.Separate("r", "l", c[0], c[1]); !errors.As(err, new(*access.NotApart)) || p != nil {
			t.Errorf("%v: %v, %v", c, p, err)
		}
	}
	for _, c := range [][2]access.Place{
		{{Bucket: "b"}, {Bucket: "c"}},
		{{Bucket: "b", Prefix: "a/"}, {Bucket: "b", Prefix: "ab/"}},
	} {
		if p, err := access.Separate("r", "l", c[0], c[1]); err != nil || len(p) == 0 {
			t.Errorf("%v: %v, %v", c, p, err)
		}
	}
}

// What a worker may write is said whole: a new action or key shows up here.
func TestAWorkersPolicy(t *testing.T) {
	got, err := json.MarshalIndent(access.Worker(access.Place{Bucket: "b", Prefix: "p/"}, access.Attempt{Work: "aa", Dispatch: 3, Attempt: 2, Code: "cc", Inputs: []string{"dd"}}), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
 "Version": "2012-10-17",
 "Statement": [
  {
   "Sid": "ReadItsWork",
   "Effect": "Allow",
   "Action": [
    "s3:GetObject"
   ],
   "Resource": [
    "arn:aws:s3:::b/p/witness/aa",
    "arn:aws:s3:::b/p/work/aa/*",
    "arn:aws:s3:::b/p/code/cc.tar.zst",
    "arn:aws:s3:::b/p/witness/dd",
    "arn:aws:s3:::b/p/work/dd/*"
   ]
  },
  {
   "Sid": "SeeWhetherItIsTheFirst",
   "Effect": "Allow",
   "Action": [
    "s3:ListBucket"
   ],
   "Resource": [
    "arn:aws:s3:::b"
   ],
   "Condition": {
    "StringLike": {
     "s3:prefix": [
      "p/work/aa/*"
     ]
    }
   }
  },
  {
   "Sid": "HoldItsLease",
   "Effect": "Allow",
   "Action": [
    "s3:PutObject"
   ],
   "Resource": [
    "arn:aws:s3:::b/p/witness/aa",
    "arn:aws:s3:::b/p/work/aa/dispatch/00000003.refused.json"
   ]
  },
  {
   "Sid": "WriteItsAttempt",
   "Effect": "Allow",
   "Action": [
    "s3:PutObject",
    "s3:AbortMultipartUpload"
   ],
   "Resource": [
    "arn:aws:s3:::b/p/work/aa/attempt/00000002/*"
   ]
  }
 ]
}`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
}
