package runners_test

import (
	"testing"

	"github.com/headway-run/headway/runners"
)

// sane declares what it is; wild panics at every question.
type sane struct{ runners.Runner }

func (sane) JobKinds() []string { return []string{"train"} }
func (sane) Capacity() int      { return -4 }

type wild struct{ runners.Runner }

func (wild) JobKinds() []string { panic("no kinds") }
func (wild) Capacity() int      { panic("no capacity") }

// TestDeclarationsThatPanic: a runner that panics when it is asked what it is takes nothing, and ends no process.
func TestDeclarationsThatPanic(t *testing.T) {
	if kinds, err := runners.AskKinds(sane{}, "p"); err != nil || len(kinds) != 1 || runners.AskCapacity(sane{}) != 1 {
		t.Errorf("%q, %v", kinds, err)
	}
	kinds, err := runners.AskKinds(wild{}, "p")
	if kinds != nil || runners.ClassOf(err) != runners.ProtocolError || err == nil {
		t.Errorf("%q, %v", kinds, err)
	}
	if n := runners.AskCapacity(wild{}); n != 1 {
		t.Errorf("capacity %d", n)
	}
}
