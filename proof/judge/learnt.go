package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/record"
)

// What lies beside the works decides nothing about a lease, so I1 to I9 say nothing of it. How it may be written keeps what
// dispatchers learn and tell from being lost or counted twice, and is judged under three more names:
//
//	STATS   an observation is created once, if absent, and changed by nobody. It goes only when the compact form of its key
//	        names it, or says that its day is over. A compact form is created if absent or replaced under the version that
//	        was read, its rev grows by one, no name in it is lost before its day is over, and it is never deleted.
//	NOTIFY  what was told of is created once, if absent, and changed by nobody; no program deletes it.
//	BOARD   created if absent or replaced under the version that was read: of two dispatchers one knows that it lost.
const (
	ruleStats  = "STATS"
	ruleNotify = "NOTIFY"
	ruleBoard  = "BOARD"
)

const (
	notifyPrefix = "notify/"
	boardPrefix  = "board/"
)

// compact is what is kept of a compact form: what it has counted.
type compact struct {
	Rev    int64               `json:"rev"`
	Folded map[string][]string `json:"folded"` // day → names
	Closed string              `json:"closed"` // days until this one are over
}

// has: the observation is counted, or too old to be.
func (c *compact) has(k record.StatsKey) bool {
	name := fmt.Sprintf("%.16s.%d", k.Work, k.Dispatch)
	if k.Late {
		name += "~"
	}
	return k.Day <= c.Closed || slices.Contains(c.Folded[k.Day], name)
}

// beside judges a write that belongs to no work. old is what lies there; nil: nothing.
func (j *Judge) beside(e *history.Entry, old *object) {
	k, stats := record.ParseStats(e.Key)
	switch {
	case stats && k.Day != "":
		j.once(ruleStats, e, old)
	case stats:
		j.swapped(ruleStats, e, old)
		j.folds(e, old)
	case strings.HasPrefix(e.Key, record.StatsPrefix):
		j.fail(ruleStats, nil, e.Key, "%s wrote %s, which no observation and no compact form has for a key", who(e.Actor), history.Name(e.Key))
	case strings.HasPrefix(e.Key, notifyPrefix):
		j.once(ruleNotify, e, old)
	case strings.HasPrefix(e.Key, boardPrefix):
		j.swapped(ruleBoard, e, old)
	}
}

// once judges what is created if absent.
func (j *Judge) once(rule string, e *history.Entry, old *object) {
	if !e.Cond.Absent() {
		j.fail(rule, nil, e.Key, "%s wrote %s without the condition that it is not there", who(e.Actor), history.Name(e.Key))
	}
	if old != nil && !bytes.Equal(old.body, e.Body) {
		j.fail(rule, nil, e.Key, "%s changed %s, which %s had written", who(e.Actor), history.Name(e.Key), who(old.by))
	}
}

// swapped judges what is created if absent, then replaced under a condition.
func (j *Judge) swapped(rule string, e *history.Entry, old *object) {
	is, swap := e.Cond.Is()
	switch {
	case !swap && !e.Cond.Absent():
		j.fail(rule, nil, e.Key, "%s wrote %s without a condition", who(e.Actor), history.Name(e.Key))
	case e.Cond.Absent() && old != nil:
		j.fail(rule, nil, e.Key, "%s created %s although %s's was there: the store broke its word", who(e.Actor), history.Name(e.Key), who(old.by))
	case swap && (old == nil || old.version != "" && is != old.version):
		j.fail(rule, nil, e.Key, "%s replaced a version of %s that was not there: the store broke its word", who(e.Actor), history.Name(e.Key))
	}
}

// folds judges one version of a compact form.
func (j *Judge) folds(e *history.Entry, old *object) {
	var was, is compact
	if err := json.Unmarshal(e.Body, &is); err != nil {
		j.fail(ruleStats, nil, e.Key, "%s wrote %s, which nobody can read: %v", who(e.Actor), history.Name(e.Key), err)
		return
	}
	if old != nil && json.Unmarshal(old.body, &was) != nil {
		return // it was said
	}
	if is.Rev != was.Rev+1 {
		j.fail(ruleStats, nil, e.Key, "%s took %s from rev %d to rev %d", who(e.Actor), history.Name(e.Key), was.Rev, is.Rev)
	}
	if is.Closed < was.Closed {
		j.fail(ruleStats, nil, e.Key, "%s opened days of %s again that were over until %s", who(e.Actor), history.Name(e.Key), was.Closed)
	}
	for _, day := range slices.Sorted(maps.Keys(was.Folded)) {
		for _, n := range was.Folded[day] {
			if day > is.Closed && !slices.Contains(is.Folded[day], n) {
				j.fail(ruleStats, nil, e.Key, "%s forgot in %s that %s of %s was counted", who(e.Actor), history.Name(e.Key), n, day)
				return
			}
		}
	}
}

// besideGone judges a delete of what belongs to no work.
func (j *Judge) besideGone(e *history.Entry) {
	k, stats := record.ParseStats(e.Key)
	switch {
	case stats && k.Day == "":
		j.fail(ruleStats, nil, e.Key, "%s deleted %s: all that was counted", who(e.Actor), history.Name(e.Key))
	case stats:
		var c compact
		o := j.objects[record.CompactKey(k.Platform, k.GPU, k.Mode)]
		if o == nil || json.Unmarshal(o.body, &c) != nil || !c.has(k) {
			j.fail(ruleStats, nil, e.Key, "%s deleted %s, which the compact form has not counted", who(e.Actor), history.Name(e.Key))
		}
	case strings.HasPrefix(e.Key, notifyPrefix) && e.Actor != "":
		j.fail(ruleNotify, nil, e.Key, "%s deleted %s: it would be told of again", who(e.Actor), history.Name(e.Key))
	}
}
