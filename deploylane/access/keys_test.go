package access_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/access"
)

func TestReadKeys(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	whole := `"AccessKeyId":"id","SecretAccessKey":"hidden","SessionToken":"t","Expiration":"2026-11-30T13:00:00Z"`
	want := access.Keys{ID: "id", Secret: "hidden", Token: "t", Expires: now.Add(time.Hour)}
	for name, answer := range map[string]string{
		"a credential_process":  `{"Version":1,` + whole + `}`,
		"the answer of the STS": `{"Credentials":{` + whole + `},"AssumedRoleUser":{"Arn":"x"}}`,
	} {
		got, err := access.ReadKeys([]byte(answer), now)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if d := cmp.Diff(map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_SESSION_TOKEN": ""}, access.Keys{ID: "id", Secret: "hidden"}.Env()); d != "" {
		t.Error(d)
	}
	for answer, want := range map[string]string{
		"":                                 "is no JSON",
		"hidden":                           "is no JSON",
		`{"AccessKeyId":"id"}`:             "no SecretAccessKey",
		`{"SecretAccessKey":"hidden"}`:     "no AccessKeyId",
		`{"Credentials":{},` + whole + `}`: "the answer has no ",
		"{" + strings.Replace(whole, "13:", "12:", 1) + "}":         "end in 0s",
		"{" + strings.Replace(whole, `hidden`, `hid\nden`, 1) + "}": "characters that no key has",
	} {
		if _, err := access.ReadKeys([]byte(answer), now); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

func FuzzReadKeys(f *testing.F) {
	f.Add([]byte(`{"Credentials":{"AccessKeyId":"id","SecretAccessKey":"s"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := access.ReadKeys(b, time.Time{})
		if err == nil && (k.ID == "" || k.Secret == "" || strings.ContainsAny(k.ID+k.Secret+k.Token, "\n\x00")) {
			t.Errorf("%+v", k)
		}
	})
}
