package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// With returns the configuration with the fields of a platform's entry filled in: capacity (jobs of one launch), script
// (faults), start, step, steps, milestone, notice, upload, until_released, quota (machine time that every per, a week where
// it is not said, gives). Anything else is refused.
func (c Config) With(options map[string]string) (Config, error) {
	times := map[string]*time.Duration{"start": &c.Model.Start, "step": &c.Model.Step, "notice": &c.Model.Notice, "upload": &c.Model.Upload, "quota": &c.Quota, "per": &c.Per}
	counts := map[string]*int64{"steps": &c.Model.Steps, "milestone": &c.Model.Milestone}
	for _, k := range slices.Sorted(maps.Keys(options)) {
		v := options[k]
		var err error
		switch {
		case times[k] != nil:
			if *times[k], err = time.ParseDuration(v); err != nil || *times[k] < 0 {
				return c, fmt.Errorf("%s: found %q, expected a time, for example 10s", k, v)
			}
		case counts[k] != nil:
			if *counts[k], err = strconv.ParseInt(v, 10, 64); err != nil || *counts[k] < 1 {
				return c, fmt.Errorf("%s: found %q, expected a number from 1", k, v)
			}
		case k == "capacity":
			if c.Capacity, err = strconv.Atoi(v); err != nil || c.Capacity < 1 || c.Capacity > 1000 {
				return c, fmt.Errorf("capacity: found %q, expected a number of jobs from 1 to 1000", v)
			}
		case k == "until_released":
			if c.UntilReleased, err = strconv.ParseBool(v); err != nil {
				return c, fmt.Errorf("until_released: found %q, expected true or false", v)
			}
		case k == "script":
			if c.Script, err = ParseScript(v); err != nil {
				return c, fmt.Errorf("script: %w", err)
			}
		default:
			known := slices.Sorted(maps.Keys(times))
			known = append(append(known, slices.Sorted(maps.Keys(counts))...), "capacity", "script", "until_released")
			slices.Sort(known)
			return c, fmt.Errorf("unknown option %q for the runner sim: it knows %s", k, strings.Join(known, ", "))
		}
	}
	_, quota := options["quota"]
	_, per := options["per"]
	switch {
	case quota && c.Quota <= 0:
		return c, fmt.Errorf("quota: found %q, expected a time above 0, for example 30h", options["quota"])
	case per && !quota:
		return c, fmt.Errorf("per: it says how often a quota resets, and there is no quota: add quota, for example 30h")
	case per && c.Per <= 0:
		return c, fmt.Errorf("per: found %q, expected a time above 0, for example 168h", options["per"])
	case quota && !per:
		c.Per = week
	}
	return c, nil
}

const week = 7 * 24 * time.Hour
