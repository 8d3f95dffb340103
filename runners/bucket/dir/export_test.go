package dir

import (
	"os"

	"github.com/headway-run/headway/runners/bucket"
)

// Classify shows what an error of the file system becomes.
func Classify(err error) bucket.Code {
	return bucket.CodeOf((&Bucket{root: "/r"}).fail("put", "k", &os.PathError{Op: "write", Path: "/r/tmp/x", Err: err}))
}
