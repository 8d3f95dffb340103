package ladder

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/record"
)

// worthWaiting holds waiting for a preferred rung against launching on one that takes the job now (DESIGN.md):
//
//	wait + start + run(up)  ≤  (1 + Slack + Thrift × saved) × (start + run(to))
func worthWaiting(up Rung, wait time.Duration, to Rung, job Job) (bool, string) {
	if up.Soon {
		return true, "in a moment"
	}
	if wait <= 0 {
		return false, "how long that takes is not known"
	}
	if what := unknown(job, up, to); what != "" {
		if wait <= to.Start {
			return true, fmt.Sprintf("%s would take as long to start (%s); %s", to.Platform, span(to.Start), what)
		}
		return false, "not waited for, since " + what
	}
	a, b := starts(up, to)
	here, there := wait.Seconds()+a+run(up, job), b+run(to, job)
	saved, money, _ := saving(up, a+run(up, job), to, b+run(to, job))
	bound := 1 + Slack + Thrift*saved
	text := fmt.Sprintf("done in %s that way, in %s on %s%s: %s times as long, up to %s is worth it", seconds(here), seconds(there), to.Platform, money, digits(here/there), digits(max(bound, 0)))
	return here <= bound*there, text
}

// worthMoving holds leaving a rung after the next milestone against staying there (DESIGN.md). Shares of what staying
// takes:
//
//	gain = (run(on) - run(to)) / run(on) + Thrift × saved    loss = (start + lost) / run(on) + Thrift × money of the start
//	move when gain ≥ max(Slack, Gain × loss)
//
// Where the quota of the better rung ends first, only the share that fits it is won, and one more restart is lost.
func worthMoving(on, to Rung, job Job) (bool, string) {
	if what := unknown(job, on, to); what != "" {
		return false, "it stays where it runs, since " + what
	}
	if to.Start <= 0 {
		return false, "it stays where it runs, since the start-up of " + to.Platform + " is not known"
	}
	here, there, start := run(on, job), run(to, job), to.Start.Seconds()
	saved, money, known := saving(to, there, on, here)
	gain := (here-there)/here + Thrift*saved
	loss := (start + job.Lost.Seconds()) / here
	if known {
		loss += Thrift * perHour(to) * start / max(perHour(on)*here, perHour(to)*there) // not 0: known
	}
	if q := to.Quota; q != nil && q.Left.Seconds() < start+there {
		gain *= max(q.Left.Seconds()-start, 0) / there
		loss += max(on.Start.Seconds(), start) / here
	}
	text := fmt.Sprintf("%s to go there, %s on %s%s: a move gains %s of what is left and loses %s by starting again; %s is worth it",
		seconds(there), seconds(here), on.Platform, money, percent(gain), percent(loss), percent(max(Slack, Gain*loss)))
	return gain >= max(Slack, Gain*loss), text
}

// unknown says what is missing to compare two rungs, or "".
func unknown(job Job, rungs ...Rung) string {
	if !(job.Left > 0) || math.IsInf(job.Left, 0) {
		return "the work that is left is not known"
	}
	for _, r := range rungs {
		if !(r.Rate > 0) || math.IsInf(r.Rate, 0) {
			return "the speed of " + r.Platform + " is not known"
		}
	}
	return ""
}

// run is the seconds that what is left takes on a rung.
func run(r Rung, job Job) float64 { return max(job.Left/r.Rate, 1e-9) }

// starts are the start-ups of two rungs in seconds; where one is not known neither counts.
func starts(a, b Rung) (x, y float64) {
	if a.Start <= 0 || b.Start <= 0 {
		return 0, 0
	}
	return a.Start.Seconds(), b.Start.Seconds()
}

// saving is the money that rung a saves against b, as a share of the dearer one, from -1 to 1; each is paid for so many
// seconds. known is false where units differ, a price is not known (an upper bound is none) or both cost nothing: then the order of the ladder and
// the time decide.
func saving(a Rung, aS float64, b Rung, bS float64) (share float64, text string, known bool) {
	if a.Price == nil || b.Price == nil || a.Price.AtMost || b.Price.AtMost {
		return 0, "", false
	}
	x, y := perHour(a)*aS/3600, perHour(b)*bS/3600
	if !(x >= 0) || !(y >= 0) || math.IsInf(x+y, 0) || x > 0 && y > 0 && a.Price.Unit != b.Price.Unit {
		return 0, "", false
	}
	dear := max(x, y)
	if dear == 0 {
		return 0, "", false
	}
	if x > y {
		return (y - x) / dear, fmt.Sprintf(" and %s %s dearer", digits(x-y), a.Price.Unit), true
	}
	return (y - x) / dear, fmt.Sprintf(" and %s %s cheaper", digits(y-x), b.Price.Unit), true
}

// perHour is a rung's price of an hour as money: what it costs in quota costs nothing.
func perHour(r Rung) float64 {
	if r.Price == nil || r.Price.Unit == QuotaUnit {
		return 0
	}
	return r.Price.PerHour
}

func costs(r Rung) string {
	if r.Price == nil {
		return "its price is not known"
	}
	return "costs " + price(*r.Price)
}

func price(p record.Price) string {
	most := ""
	if p.AtMost {
		most = "at most "
	}
	if p.PerHour == 0 {
		return "nothing"
	}
	if p.Unit == QuotaUnit {
		return digits(p.PerHour) + " h of its quota an hour"
	}
	return strings.TrimRight(most+strconv.FormatFloat(p.PerHour, 'g', 4, 64)+" "+p.Unit, " ") + "/h"
}

func digits(x float64) string  { return strconv.FormatFloat(x, 'g', 3, 64) }
func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 0, 64) + " %" }

func seconds(s float64) string {
	return span(time.Duration(min(s, 1e9) * float64(time.Second)))
}

// span is a duration for people, in its two largest units.
func span(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	pair := func(a int64, as string, b int64, bs string) string {
		if b == 0 {
			return fmt.Sprintf("%d %s", a, as)
		}
		return fmt.Sprintf("%d %s %d %s", a, as, b, bs)
	}
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return pair(s/60, "min", s%60, "s")
	case s < 2*86400:
		return pair(s/3600, "h", s%3600/60, "min")
	}
	return pair(s/86400, "d", s%86400/3600, "h")
}
