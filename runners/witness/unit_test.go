package witness

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(childEnv); how != "" {
		if err := child(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The S3 client of the tests with a real server keeps its connections.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

func isUnreadable(err error) bool {
	_, is := errors.AsType[*Unreadable](err)
	return is
}

func why(err error) Why {
	if no, is := errors.AsType[*Refusal](err); is {
		return no.Why
	}
	return 0
}
