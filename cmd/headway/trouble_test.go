package main

import (
	"bytes"
	"strings"
	"testing"
)

// One trouble is said once, although a store numbers its answers; another one is said too.
func TestTroubleIsSaidOnce(t *testing.T) {
	var out bytes.Buffer
	w := &watcher{env: env{stderr: &out}, trouble: map[string]string{}}
	for _, text := range []string{
		`get a: NoBucket: 404, request "A1": tried again`,
		`get a: NoBucket: 404, request "B2": tried again`,
		`get a: Denied: 403, request "C3": tried again`,
		`half of a number, request "D4`,
	} {
		w.say("commit", "%s", text)
	}
	if got := strings.Count(out.String(), "warning: "); got != 3 || strings.Contains(out.String(), "B2") || !strings.Contains(out.String(), `"A1"`) {
		t.Errorf("%d warnings:\n%s", got, out.String())
	}
}
