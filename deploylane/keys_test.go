package deploylane

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-run/headway/deploylane/access"
	"github.com/headway-run/headway/runners/record"
)

// Each launch has keys of its own, for the attempt that it will be; without keys nothing is launched.
func TestAWorkerGetsKeysForItsAttempt(t *testing.T) {
	synctest.Test(t, aWorkerGetsKeys)
}

func aWorkerGetsKeys(t *testing.T) {
	g := newRig(t, 5)
	g.lane.StoreURL = "s3://acme/lane"
	var asked []access.Policy
	down := true
	g.lane.Keys = func(_ context.Context, p access.Policy) (map[string]string, error) {
		if asked = append(asked, p); down {
			return nil, errors.New("the keys' service is down")
		}
		return map[string]string{"AWS_ACCESS_KEY_ID": "short-lived"}, nil
	}
	g.tagged("v1.0.0", 1)
	all, trouble := g.pass(g.lane)
	if len(trouble) > 0 || !strings.Contains(all[0].Text, "there are no keys for its worker: the keys' service is down") || len(g.place.launched) > 0 {
		t.Fatalf("%+v, %v, %d launched", all, trouble, len(g.place.launched))
	}
	down = false
	if s := g.settle(g.lane, "v1.0.0"); !s.Done || s.Refused {
		t.Fatalf("%+v", s)
	}
	for i, l := range g.place.launched {
		want := access.Worker(access.Place{Bucket: "acme", Prefix: "lane/"}, access.Attempt{Work: l.Work, Dispatch: l.Dispatch, Attempt: 1, Code: l.Spec.CodeTree, Inputs: []string{l.Spec.Inputs[0].Work}})
		got := asked[len(asked)-len(g.place.launched)+i]
		if l.Env["AWS_ACCESS_KEY_ID"] != "short-lived" || got.Statement[3].Resource[0] != want.Statement[3].Resource[0] ||
			got.Statement[3].Resource[0] != "arn:aws:s3:::acme/lane/"+record.AttemptPrefix(l.Work, 1)+"*" {
			t.Errorf("launch %d: %v, %+v", i, l.Env, got)
		}
	}
}
