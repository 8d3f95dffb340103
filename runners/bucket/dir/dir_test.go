package dir_test

import (
	"testing"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/buckettest"
	"github.com/headway-run/headway/runners/bucket/dir"
)

func open(t *testing.T, root string, o dir.Options) *dir.Bucket {
	t.Helper()
	b, err := dir.Open(root, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]dir.Options{
		"durable": {Create: true}, "no sync": {Create: true, NoSync: true}, "no link": {Create: true, NoSync: true, NoLink: true},
	} {
		t.Run(name, func(t *testing.T) {
			buckettest.Run(t, func(t *testing.T) bucket.Bucket { return open(t, t.TempDir(), o) })
		})
	}
}
