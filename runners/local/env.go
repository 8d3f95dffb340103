package local

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/runners"
)

// lendLimit is how long the keys for one launch may take: a role's are fetched over the network.
const lendLimit = 30 * time.Second

// passedOn names what an agent gets of the dispatcher's environment, besides AWS_* for a store on S3: where programs,
// home, certificates and cards are found, the language, and the way out to the network. A table of values. Nothing
// else of it reaches a job, so that a token in the dispatcher's environment is not every program's.
var passedOn = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
	"VIRTUAL_ENV", "CONDA_PREFIX",
}

// storeKeys are the variables that a StoreEnv answers for: those of the dispatcher's environment are not mixed with them.
// A table of values.
var storeKeys = []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}

// lend asks for what the agents of these jobs need to open a store on S3; nil: what the dispatcher's environment has.
func (r *Runner) lend(ctx context.Context, jobs []runners.Launch) ([]string, error) {
	if r.storeEnv == nil || !slices.ContainsFunc(jobs, onS3) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lendLimit)
	defer cancel()
	return r.storeEnv(ctx)
}

func onS3(j runners.Launch) bool { return strings.HasPrefix(j.Store, "s3:") }

// environment is the whole environment of one agent. lent replaces the dispatcher's own keys when it is not nil. A
// secret never replaces one of ours, and later entries win.
func environment(dispatcher, lent []string, platform, dir string, j runners.Launch) []string {
	var env []string
	for _, kv := range dispatcher {
		k, _, ok := strings.Cut(kv, "=")
		keys := strings.HasPrefix(k, "AWS_") && onS3(j) && (lent == nil || !slices.Contains(storeKeys, k))
		if ok && (keys || slices.Contains(passedOn, k)) {
			env = append(env, kv)
		}
	}
	if onS3(j) {
		env = append(env, lent...)
	}
	for _, k := range slices.Sorted(maps.Keys(j.Env)) {
		env = append(env, k+"="+j.Env[k])
	}
	within := "" // never
	if j.Within > 0 {
		within = j.Within.String()
	}
	return append(env,
		"HEADWAY_STORE="+j.Store,
		"HEADWAY_WORK="+j.Work,
		"HEADWAY_DISPATCH="+strconv.FormatInt(j.Dispatch, 10),
		"HEADWAY_PLATFORM="+platform,
		"HEADWAY_WITHIN="+within,
		mark(dir),
	)
}
