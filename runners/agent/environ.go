package agent

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/headway-run/headway/runners/record"
)

// needVar is the variable that holds the folder of an input's result: HEADWAY_NEED_<NAME>, in upper case with
// everything but letters and digits as "_".
func needVar(job string) string {
	return "HEADWAY_NEED_" + strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToUpper(r)
		}
		return '_'
	}, job)
}

// missingSecrets lists the names that the claim asks for and the agent's environment does not have.
func missingSecrets(names, environ []string) (missing []string) {
	for _, n := range names {
		if !slices.ContainsFunc(environ, func(e string) bool { return strings.HasPrefix(e, n+"=") }) {
			missing = append(missing, n)
		}
	}
	return missing
}

// programEnv makes the program's environment: the agent's own without HEADWAY_* and store keys, then the work's, then
// the protocol's. A secret is what the claim names; a store key that is also named there is the user's wish.
func programEnv(environ []string, spec *record.Spec, secrets []string, ours map[string]string, python string) []string {
	env := map[string]string{}
	for _, e := range environ {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			continue
		}
		kept := slices.Contains(secrets, name)
		if private := strings.HasPrefix(name, "HEADWAY_") || strings.HasPrefix(name, "AWS_"); kept || !private {
			env[name] = value
		}
	}
	for name, value := range spec.Env {
		if !strings.HasPrefix(name, "HEADWAY_") {
			env[name] = value
		}
	}
	maps.Copy(env, ours)
	if python != "" {
		if old := env["PYTHONPATH"]; old != "" {
			python += string(filepath.ListSeparator) + old
		}
		env["PYTHONPATH"] = python
	}
	if _, set := env["PYTHONUNBUFFERED"]; !set {
		env["PYTHONUNBUFFERED"] = "1" // else the last lines of a killed program are lost
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// fillArgv puts the folders of inputs in place of ${needs.<job>}. Anything else that looks like a placeholder was
// filled in when the plan was read; what is left of it is a mistake of the dispatcher.
func fillArgv(argv []string, needs map[string]string) ([]string, error) {
	out := make([]string, len(argv))
	for i, word := range argv {
		for {
			before, rest, found := strings.Cut(word, "${needs.")
			if !found {
				break
			}
			job, after, closed := strings.Cut(rest, "}")
			dir, known := needs[job]
			if !closed || !known {
				return nil, fmt.Errorf("word %d of the command asks for ${needs.%.80s}, which is no input of this work", i+1, job)
			}
			out[i] += before + dir
			word = after
		}
		out[i] += word
	}
	return out, nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
