package plan

import (
	"regexp"
	"strings"
)

// secretForms are the shapes of keys that must never be committed. The list errs on the side of well-known prefixes:
// a match must be almost surely a key, since it refuses the file. (Table of values.)
var secretForms = []struct {
	what string
	hint string // cheap test: no match without it
	form *regexp.Regexp
}{
	{"a private key", "PRIVATE KEY", regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY`)},
	{"an AWS access key", "A", regexp.MustCompile(`(?:^|[^A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?:[^A-Za-z0-9]|$)`)},
	{"a GitHub token", "gh", regexp.MustCompile(`gh[pousr]_[A-Za-z0-9]{20,}`)},
	{"a GitHub token", "github_pat_", regexp.MustCompile(`github_pat_[A-Za-z0-9_]{20,}`)},
	{"a GitLab token", "glpat-", regexp.MustCompile(`glpat-[A-Za-z0-9_-]{16,}`)},
	{"an API key", "sk-", regexp.MustCompile(`(?:^|[^A-Za-z0-9])sk-[A-Za-z0-9_-]{16,}`)},
	{"an API key", "sk_", regexp.MustCompile(`(?:^|[^A-Za-z0-9])[sr]k_(?:live|test)_[A-Za-z0-9]{16,}`)},
	{"a Hugging Face token", "hf_", regexp.MustCompile(`(?:^|[^A-Za-z0-9])hf_[A-Za-z0-9]{24,}`)},
	{"a Slack token", "xox", regexp.MustCompile(`xox[abeoprs]-[A-Za-z0-9-]{10,}`)},
	{"a Slack webhook", "hooks.slack.com", regexp.MustCompile(`hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/]{16,}`)},
	{"a Discord webhook", "/api/webhooks/", regexp.MustCompile(`discord(?:app)?\.com/api/webhooks/[0-9]{6,}/[A-Za-z0-9_-]{16,}`)},
	{"a Teams webhook", "webhook", regexp.MustCompile(`\.webhook\.office\.com/webhookb2/[A-Za-z0-9@/-]{16,}`)},
	{"a Google API key", "AIza", regexp.MustCompile(`AIza[A-Za-z0-9_-]{35}`)},
	{"an npm token", "npm_", regexp.MustCompile(`npm_[A-Za-z0-9]{30,}`)},
	{"a PyPI token", "pypi-", regexp.MustCompile(`pypi-[A-Za-z0-9_-]{40,}`)},
	{"a JSON web token", "eyJ", regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`)},
	{"a bearer token", "earer ", regexp.MustCompile(`[Bb]earer [A-Za-z0-9._~+/=-]{16,}`)},
	{"a URL with a password in it", "://", regexp.MustCompile(`://[^/\s:@]+:[^/\s@$]+@`)},
}

// secretNames are endings of a variable's name that promise a secret value. (Table of values.)
var secretNames = []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "SECRET_KEY", "ACCESS_KEY", "ACCESS_KEY_ID", "PRIVATE_KEY", "CREDENTIALS"}

// looksSecret names the kind of secret that s looks like, or "".
func looksSecret(s string) string {
	if len(s) < 14 {
		return ""
	}
	for _, f := range secretForms {
		if strings.Contains(s, f.hint) && f.form.MatchString(s) {
			return f.what
		}
	}
	return ""
}

// redact takes everything that looks like a secret out of a text. Every message goes through it last, whatever it was
// made of, and before it is cut.
func redact(s string) string {
	if len(s) < 14 {
		return s
	}
	for _, f := range secretForms {
		if strings.Contains(s, f.hint) {
			s = f.form.ReplaceAllString(s, "(not shown)")
		}
	}
	return s
}

// Redact is redact for what others print or send: texts that may quote a program's output or a platform's answer.
func Redact(s string) string { return redact(s) }

// namesSecret says that a variable of this name with this value is most likely a secret written in the clear: its
// name promises one, and the value is long, without spaces, and mixes letters and digits; what is called a password is one.
func namesSecret(name, value string) bool {
	for _, e := range []string{"PASSWORD", "PASSWD", "PASSPHRASE"} { // whoever chose it, it may be any word
		if strings.HasSuffix(strings.ToUpper(name), e) && value != "" && !strings.Contains(value, "${") {
			return true
		}
	}
	if len(value) < 12 || strings.ContainsAny(value, " /${}") && len(value) < 32 {
		return false
	}
	letters := strings.ContainsFunc(value, func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' })
	if !letters || !strings.ContainsAny(value, "0123456789") || strings.Contains(value, "${") || strings.Contains(value, " ") {
		return false
	}
	upper := strings.ToUpper(name)
	for _, e := range secretNames {
		if upper == e || strings.HasSuffix(upper, "_"+e) {
			return true
		}
	}
	return false
}
