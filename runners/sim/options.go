package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// With returns the configuration with the fields of a platform's entry filled in: script (faults), start, step,
// steps, milestone, notice, upload, price, until_released. Anything else is refused.
func (c Config) With(options map[string]string) (Config, error) {
	times := map[string]*time.Duration{"start": &c.Model.Start, "step": &c.Model.Step, "notice": &c.Model.Notice, "upload": &c.Model.Upload}
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
		case k == "price":
			if c.Price, err = strconv.ParseFloat(v, 64); err != nil || !(c.Price >= 0) {
				return c, fmt.Errorf("price: found %q, expected an amount per hour, for example 0.40", v)
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
			known = append(append(known, slices.Sorted(maps.Keys(counts))...), "price", "script", "until_released")
			return c, fmt.Errorf("unknown option %q for the runner sim: it knows %s", k, strings.Join(known, ", "))
		}
	}
	return c, nil
}
