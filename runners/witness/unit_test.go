package witness

import (
	"errors"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
