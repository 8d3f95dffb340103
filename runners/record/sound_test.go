package record

import (
	"testing"
)

// FuzzSums: whatever lies in a manifest or an end.json, an account that is taken from it can be added up, and one that
// no worker can have measured is none.
func FuzzSums(f *testing.F) {
	for _, s := range []string{
		`{"steps":3,"work":1e12,"step_s":1.5,"warm_s":2,"median_s":0.5,"ratios":{"done":{"8":3},"censored":{"111":1}}}`,
		`{"steps":-1}`, `{"work":1e308}`, `{"step_s":-0.1}`, `{"median_s":1e10}`, `{"ratios":{"done":{"112":1}}}`,
		`{"ratios":{"done":{"-1":1}}}`, `{"ratios":{"done":{"3":-9}}}`, `{"ratios":{"done":{"3":9223372036854775807}}}`, `null`, `[]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var e End
		var m Manifest
		if Decode([]byte(`{"sums":`+string(b)+`}`), MaxRecord, &e) != nil || Decode([]byte(`{"sums":`+string(b)+`}`), MaxManifest, &m) != nil {
			return
		}
		s := e.Sums.Sound()
		if (s == nil) != (m.Sums.Sound() == nil) {
			t.Fatal("one of two equal accounts is sound")
		}
		if s == nil {
			return
		}
		var all Histogram
		for range 3 {
			all.Merge(s.Ratios)
		}
		if done, censored := all.N(); done < 0 || censored < 0 || s.Check() != nil || all.Check() != nil && s.Ratios.Check() != nil {
			t.Fatalf("%d and %d steps, %v", done, censored, s.Check())
		}
		for bin := range s.Ratios.Done {
			if BinFloor(bin) <= 0 {
				t.Fatal(bin)
			}
		}
	})
}
