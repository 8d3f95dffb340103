package tag

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	refTags    = "refs/tags/"
	dirRelease = "release/"
	dirStage   = "stage/"
)

// Prefixes are the beginnings of all refs that belong to the lane.
func Prefixes() []string { return []string{refTags + dirRelease, refTags + dirStage} }

// Name is what a tag of the lane is called: release/MODEL/vVERSION or stage/MODEL/STAGE/N.
type Name struct {
	Model   string
	Version Version // of a release
	Stage   string  // of a stage tag; empty: it is a release
	N       int64   // of a stage tag, from 1
}

// String is the tag's short name.
func (n Name) String() string {
	if n.Stage != "" {
		return fmt.Sprintf("%s%s/%s/%d", dirStage, n.Model, n.Stage, n.N)
	}
	return dirRelease + n.Model + "/" + n.Version.String()
}

// Ref is the tag's full name.
func (n Name) Ref() string { return refTags + n.String() }

var (
	modelName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)
	stageName  = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`)
	number     = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})$`)
	prerelease = regexp.MustCompile(`^[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*$`)
)

// CheckModel says what is wrong with the name of a model, or "".
func CheckModel(s string) string {
	if !modelName.MatchString(s) || strings.Contains(s, "..") || strings.HasSuffix(s, ".lock") || s == "head" {
		return "the model " + clip(s) + " must be of lower-case letters, digits, dots, dashes and underscores, such as digits"
	}
	return ""
}

// CheckStage says what is wrong with the name of a stage, or "".
func CheckStage(s string) string {
	if !stageName.MatchString(s) {
		return "the stage " + clip(s) + " must be of lower-case letters, digits and dashes, such as prod"
	}
	return ""
}

// Parse reads a full ref under one of Prefixes. stages are those that exist.
func Parse(ref string, stages []string) (Name, *Refusal) {
	name := strings.TrimPrefix(ref, refTags)
	bad := func(why string) (Name, *Refusal) { return Name{}, refuse(BadTagName, "tag", name, "why", why) }
	if rest, is := strings.CutPrefix(name, dirRelease); is {
		model, version, two := strings.Cut(rest, "/")
		if !two || strings.Contains(version, "/") {
			return bad("a release is called release/MODEL/vVERSION, such as release/digits/v1.2.0")
		}
		if why := CheckModel(model); why != "" {
			return bad(why)
		}
		v, err := ParseVersion(version)
		if err != nil {
			return bad(err.Error())
		}
		return Name{Model: model, Version: v}, nil
	}
	parts := strings.Split(strings.TrimPrefix(name, dirStage), "/")
	if len(parts) != 3 || !strings.HasPrefix(name, dirStage) {
		return bad("a stage tag is called stage/MODEL/STAGE/N, such as stage/digits/prod/1")
	}
	if why := CheckModel(parts[0]); why != "" {
		return bad(why)
	}
	if !slices.Contains(stages, parts[1]) {
		return bad("the stage " + clip(parts[1]) + " is none of " + clip(strings.Join(stages, ", ")) + " (lane/policy.yaml lists them)")
	}
	n, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || !number.MatchString(parts[2]) || n == 0 {
		return bad("the number " + clip(parts[2]) + " must be plain digits from 1")
	}
	return Name{Model: parts[0], Stage: parts[1], N: n}, nil
}

// modelOf is the model whose ledger a ref belongs to; "" when its name does not say.
func modelOf(ref string) string {
	name := strings.TrimPrefix(ref, refTags)
	for _, dir := range []string{dirRelease, dirStage} {
		if rest, is := strings.CutPrefix(name, dir); is {
			if model, _, more := strings.Cut(rest, "/"); more && CheckModel(model) == "" {
				return model
			}
		}
	}
	return ""
}

// Version is a semantic version without build metadata.
type Version struct {
	Major, Minor, Patch int64
	Pre                 string // prerelease, without its dash
}

// ParseVersion reads vMAJOR.MINOR.PATCH(-prerelease).
func ParseVersion(s string) (Version, error) {
	bad := func() (Version, error) {
		return Version{}, fmt.Errorf("the version %s must look like v1.2.0 or v1.2.0-rc.1", clip(s))
	}
	rest, is := strings.CutPrefix(s, "v")
	core, pre, dashed := strings.Cut(rest, "-")
	if strings.Contains(s, "+") {
		return Version{}, fmt.Errorf("the version %s has build metadata, which orders nothing: leave it out", clip(s))
	}
	parts := strings.Split(core, ".")
	if !is || len(parts) != 3 || dashed && (len(pre) > 64 || !prerelease.MatchString(pre)) || strings.HasSuffix(pre, ".lock") {
		return bad()
	}
	var n [3]int64
	for i, p := range parts {
		if !number.MatchString(p) {
			return bad()
		}
		n[i], _ = strconv.ParseInt(p, 10, 64) // at most nine digits
	}
	for part := range strings.SplitSeq(pre, ".") {
		if len(part) > 1 && part[0] == '0' && strings.Trim(part, "0123456789") == "" {
			return bad()
		}
	}
	return Version{n[0], n[1], n[2], pre}, nil
}

func (v Version) String() string {
	s := fmt.Sprintf("v%d.%d.%d", v.Major, v.Minor, v.Patch)
	if v.Pre != "" {
		s += "-" + v.Pre
	}
	return s
}

// Compare orders as semver.org §11 says: a prerelease lies before its version.
func (v Version) Compare(w Version) int {
	if c := cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor), cmp.Compare(v.Patch, w.Patch)); c != 0 || v.Pre == w.Pre {
		return c
	}
	if v.Pre == "" || w.Pre == "" {
		return cmp.Compare(len(w.Pre), len(v.Pre)) // the empty one is the greater
	}
	return slices.CompareFunc(strings.Split(v.Pre, "."), strings.Split(w.Pre, "."), comparePre)
}

func comparePre(a, b string) int {
	an, bn := strings.Trim(a, "0123456789") == "", strings.Trim(b, "0123456789") == ""
	switch {
	case an && bn:
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // no leading zeros
	case an:
		return -1
	case bn:
		return 1
	}
	return cmp.Compare(a, b)
}

// next is the version that may follow: of a prerelease its version, else the next patch.
func (v Version) next() Version {
	if v.Pre != "" {
		return Version{v.Major, v.Minor, v.Patch, ""}
	}
	return Version{v.Major, v.Minor, v.Patch + 1, ""}
}
