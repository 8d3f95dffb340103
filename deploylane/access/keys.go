package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// LeastKeys is how long a worker's keys must last when it is launched. A run that takes longer loses the store when they
// end, and goes on from its last milestone as its next attempt, with keys of its own.
const LeastKeys = 15 * time.Minute

// Keys open a store for one worker.
type Keys struct {
	ID, Secret, Token string
	Expires           time.Time // zero: never
}

// ReadKeys reads what a command answered that was asked for a worker's keys: what AWS's tools print as the answer to
// assume-role, or what they read of a credential_process. now is for what is left of them.
func ReadKeys(answer []byte, now time.Time) (Keys, error) {
	type one struct {
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		SessionToken    string
		Expiration      *time.Time
	}
	var both struct {
		one
		Credentials *one
	}
	if err := json.Unmarshal(answer, &both); err != nil {
		return Keys{}, errors.New(`the answer is no JSON: expected {"AccessKeyId": …, "SecretAccessKey": …, "SessionToken": …, "Expiration": …}`) // never the answer itself
	}
	got := both.one
	if both.Credentials != nil {
		got = *both.Credentials
	}
	k := Keys{ID: got.AccessKeyID, Secret: got.SecretAccessKey, Token: got.SessionToken}
	for name, v := range map[string]string{"AccessKeyId": k.ID, "SecretAccessKey": k.Secret} {
		if v == "" || len(v) > 4096 {
			return Keys{}, fmt.Errorf("the answer has no %s", name)
		}
	}
	if strings.ContainsAny(k.ID+k.Secret+k.Token, "\x00\r\n") || len(k.Token) > 16<<10 {
		return Keys{}, errors.New("the answer's keys have characters that no key has")
	}
	if got.Expiration != nil {
		k.Expires = *got.Expiration
		if left := k.Expires.Sub(now); left < LeastKeys {
			return Keys{}, fmt.Errorf("the keys that were given end in %s: a worker needs them for %s at the least", left.Round(time.Second), LeastKeys)
		}
	}
	return k, nil
}

// Env is what a worker finds them by. The token is there even when it is empty, so that nobody else's stands in for it.
func (k Keys) Env() map[string]string {
	return map[string]string{"AWS_ACCESS_KEY_ID": k.ID, "AWS_SECRET_ACCESS_KEY": k.Secret, "AWS_SESSION_TOKEN": k.Token}
}
