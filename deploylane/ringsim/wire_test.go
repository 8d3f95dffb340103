package ringsim

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The vectors of ring.md §4, for the simulator's own writing of the formula.
func TestBoundVectors(t *testing.T) {
	for _, v := range []struct {
		tail                 bool
		rows, micro, q, want uint64
	}{
		{false, 2048, 512, 8, 34_419_218_444}, {true, 2048, 512, 8, 59_136_012},
		{false, 128, 32, 8, 137_935_244}, {true, 128, 32, 8, 3_696_012},
		{false, 128, 128, 8, 540_588_428}, {false, 64, 32, 8, 68_967_628},
		{false, 64, 64, 8, 136_076_492}, {false, 128, 64, 8, 272_152_972}, {false, 256, 32, 8, 275_870_476},
	} {
		if got := bound(v.tail, v.rows, v.micro, v.q, 2, 4096); got != v.want {
			t.Errorf("%+v: %d", v, got)
		}
	}
	// The engine's own unit test: a payload of 2^20 bytes, which is 512 rows of 256 floats in two tensors.
	if got := bound(false, 512, 512, 10, 2, 256); got != 551_745_036 {
		t.Errorf("512: %d", got)
	}
}

// What is written is read, and what is no frame is refused in bounded memory.
func TestFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := frame{ID: rapid.String().Draw(t, "id"), Kind: rapid.String().Draw(t, "kind"), To: target{Agent: rapid.String().Draw(t, "agent")}, Body: rapid.SliceOfN(rapid.Byte(), 1, 99).Draw(t, "body")}
		var wire bytes.Buffer
		if err := writeFrame(&wire, f); err != nil {
			t.Fatal(err)
		}
		got, err := readFrame(&wire)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, '{'})
	f.Add([]byte{255, 255, 255, 255})
	f.Add(append([]byte{2, 0, 0, 0}, "{}"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeFrame(&again, got); err != nil {
			t.Fatal(err)
		}
		if _, err := readFrame(&again); err != nil {
			t.Fatal(err)
		}
	})
}
