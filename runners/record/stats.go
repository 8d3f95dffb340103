package record

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// StatsPrefix holds observations and their compact form, by platform, card and math mode.
const StatsPrefix = "stats/"

const (
	compactName = "compact.json"
	lateMark    = ".late"
)

// statsFolder is a key's folder. Names come from elsewhere, so each is escaped to one part of a path.
func statsFolder(platform, gpu, mode string) string {
	return StatsPrefix + part(platform) + "/" + part(gpu) + "/" + part(mode) + "/"
}

// part escapes a name to one part of a key that is neither "." nor "..". Names are not empty.
func part(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), ".", "%2E")
}

// ObservationKey is created if absent at the end of a dispatch. end is the store's stamp of it.
func ObservationKey(o Observation, end time.Time) string {
	late := ""
	if o.Late {
		late = lateMark
	}
	return fmt.Sprintf("%s%s/%s.%d%s.json", statsFolder(o.Platform, o.GPU, o.Mode), end.UTC().Format(time.DateOnly), o.Work, o.Dispatch, late)
}

// CompactKey is the compact form of a platform's, card's and mode's observations (conditional writes).
func CompactKey(platform, gpu, mode string) string {
	return statsFolder(platform, gpu, mode) + compactName
}

// StatsKey says what a key under stats/ is.
type StatsKey struct {
	Platform, GPU, Mode string
	Day                 string // of an observation; "": the compact form
	Work                string
	Dispatch            int64
	Late                bool
}

// ParseStats reads a key under stats/ back. ok is false for any key that ObservationKey and CompactKey do not make.
func ParseStats(key string) (k StatsKey, ok bool) {
	rest, found := strings.CutPrefix(key, StatsPrefix)
	parts := strings.Split(rest, "/")
	if !found || len(parts) < 4 || len(parts) > 5 {
		return StatsKey{}, false
	}
	for i, to := range []*string{&k.Platform, &k.GPU, &k.Mode} {
		name, err := url.QueryUnescape(parts[i])
		if err != nil || name == "" || part(name) != parts[i] {
			return StatsKey{}, false
		}
		*to = name
	}
	if len(parts) == 4 {
		return k, parts[3] == compactName
	}
	k.Day = parts[3]
	name, cut := strings.CutSuffix(parts[4], ".json")
	name, k.Late = strings.CutSuffix(name, lateMark)
	work, number, cut2 := strings.Cut(name, ".")
	n, err := strconv.ParseInt(number, 10, 64)
	day, bad := time.Parse(time.DateOnly, k.Day)
	k.Work, k.Dispatch = work, n
	if !cut || !cut2 || err != nil || bad != nil || n < 1 || strconv.FormatInt(n, 10) != number || day.Format(time.DateOnly) != k.Day ||
		len(work) != 64 || strings.Trim(work, "0123456789abcdef") != "" {
		return StatsKey{}, false
	}
	return k, true
}
