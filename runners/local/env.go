package local

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-run/headway/runners"
)

// passedOn names what an agent gets of the dispatcher's environment, besides AWS_* for a store on S3: where programs,
// home, certificates and cards are found, the language, and the way out to the network. A table of values. Nothing
// else of it reaches a job, so that a token in the dispatcher's environment is not every program's.
var passedOn = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
	"VIRTUAL_ENV", "CONDA_PREFIX",
}

// environment is the whole environment of one agent. A secret never replaces one of ours, and later entries win.
func environment(dispatcher []string, platform, dir string, j runners.Launch) []string {
	var env []string
	for _, kv := range dispatcher {
		k, _, ok := strings.Cut(kv, "=")
		keys := strings.HasPrefix(k, "AWS_") && strings.HasPrefix(j.Store, "s3:")
		if ok && (keys || slices.Contains(passedOn, k)) {
			env = append(env, kv)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(j.Env)) {
		env = append(env, k+"="+j.Env[k])
	}
	return append(env,
		"HEADWAY_STORE="+j.Store,
		"HEADWAY_WORK="+j.Work,
		"HEADWAY_DISPATCH="+strconv.FormatInt(j.Dispatch, 10),
		"HEADWAY_PLATFORM="+platform,
		mark(dir),
	)
}
