package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/headway-run/headway/runners"
)

// keysWait bounds the search for the store's keys: its last place is a service of the machine, which may not be there.
const keysWait = 5 * time.Second

// keysHint says where keys may come from.
const keysHint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile of ~/.aws with AWS_PROFILE"

// storeKeys finds the keys for a store on S3 where every program that speaks to AWS looks for them.
func storeKeys(ctx context.Context) (aws.Config, aws.Credentials, error) {
	bounded, cancel := context.WithTimeout(ctx, keysWait)
	defer cancel()
	chain, err := config.LoadDefaultConfig(bounded, config.WithLogger(logging.Nop{}))
	if err != nil {
		return chain, aws.Credentials{}, fmt.Errorf("the settings of its keys cannot be used: %s", runners.Bound(err.Error(), 400))
	}
	keys, err := chain.Credentials.Retrieve(bounded)
	switch {
	case err == nil || ctx.Err() != nil:
		return chain, keys, err
	case strings.Contains(err.Error(), "ec2imds") || bounded.Err() != nil: // the last place: no other one had any
		return chain, keys, errors.New("no credentials were found (looked in AWS_ACCESS_KEY_ID, the profiles of ~/.aws, and the roles of a container and of this machine)")
	}
	return chain, keys, fmt.Errorf("its credentials cannot be had: %s", runners.Bound(err.Error(), 400))
}

// leastKeys is how long the store's keys must still last when an agent is started with them. A run that takes longer
// than its keys loses the store then, and goes on from its last milestone with fresh ones: below this it is not worth
// the start.
const leastKeys = 15 * time.Minute

// storeEnv is what an agent on this machine needs to open the store on S3: the keys that this program itself would use
// now, wherever they come from.
func (e env) storeEnv(ctx context.Context) ([]string, error) {
	chain, keys, err := storeKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("keys for the store: %w", err)
	}
	if left := time.Until(keys.Expires); keys.CanExpire && left >= leastKeys {
		e.logger().Warn("the store's keys expire: a longer run loses the store then, and goes on from its last milestone with fresh ones",
			"left", left.Round(time.Minute).String())
	}
	return lent(keys, chain.Region, time.Now())
}

// lent makes keys the variables that an agent opens a store with.
func lent(keys aws.Credentials, region string, now time.Time) ([]string, error) {
	if left := keys.Expires.Sub(now); keys.CanExpire && left < leastKeys {
		return nil, fmt.Errorf("the store's keys run out in %s, a run needs them for %s at the least", left.Round(time.Second), leastKeys)
	}
	env := []string{"AWS_ACCESS_KEY_ID=" + keys.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + keys.SecretAccessKey}
	if keys.SessionToken != "" {
		env = append(env, "AWS_SESSION_TOKEN="+keys.SessionToken)
	}
	if region != "" {
		env = append(env, "AWS_REGION="+region)
	}
	return env, nil
}
