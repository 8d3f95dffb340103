package main

import (
	"slices"
	"time"

	"github.com/headway-run/headway/reconcile/ladder"
)

// month is one policy's run through one seed.
type month struct {
	seed   uint64
	policy policy
	market market
	places []*place
	tasks  []*task
	now    int
	sum    total
}

// replay runs a policy through a month.
func replay(seed uint64, p policy) total {
	m := &month{seed: seed, policy: p, market: newMarket(seed), places: places(), tasks: newTasks(seed)}
	for m.now = 0; m.now < minutes; m.now++ {
		m.renew()
		for _, p := range m.places {
			p.queue = 0
		}
		for _, t := range m.tasks {
			if t.on != nil {
				m.work(t)
			}
		}
		for _, t := range m.tasks {
			if t.arrives <= m.now && t.ended < 0 && t.on == nil {
				m.launch(t)
			}
		}
	}
	m.sum.jobs = len(m.tasks)
	for _, t := range m.tasks {
		end := minutes
		if t.ended >= 0 {
			end = t.ended
			m.sum.finished++
		}
		m.sum.waitH += float64(end-t.arrives) / 60
		m.sum.restH += t.lost / 60
	}
	m.sum.idleH += max(m.places[0].left, 0) / 60
	return m.sum
}

// renew sets prices, resets the quota on Saturdays, and ends the stay of those that the market takes away.
func (m *month) renew() {
	spot := m.places[2]
	spot.price.PerHour = m.market.price[m.now/60]
	spot.slots = m.market.room[m.now/60]
	if m.now >= saturday && (m.now-saturday)%week == 0 {
		m.sum.idleH += max(m.places[0].left, 0) / 60
		m.places[0].left = quotaMinutes
	}
}

// rungs is the ladder as it stands, for a task that may be running. Those that are on their way up have their slot.
func (m *month) rungs(t *task) []ladder.Rung {
	var out []ladder.Rung
	for _, p := range m.places {
		r := ladder.Rung{Platform: p.name, Rate: p.rate, Start: span(float64(p.start)), Price: &p.price}
		taken := p.running + p.wanted
		if t.wants == p {
			taken--
		}
		if p.mtbf == 0 && taken >= p.slots {
			r.Full = "all its slots are taken"
			r.Parked = m.frees(p)
		}
		if p.until > m.now {
			_, before := park(p.series)
			r.Parked, r.Waited = span(float64(p.until-m.now)), before
		}
		if p.counted {
			r.Quota = &ladder.Quota{Left: span(p.left), Whole: span(quotaMinutes), Resets: span(float64(m.reset(p)))}
		}
		out = append(out, r)
	}
	return out
}

// frees is when the next slot of a full place is free that nobody before in this minute waits for; 0: not known.
func (m *month) frees(p *place) time.Duration {
	var ends []float64
	for _, t := range m.tasks {
		if t.on == p {
			ends = append(ends, (t.flops-t.kept-t.fresh)/p.rate/60+float64(max(p.start-(m.now-t.began), 0)))
		}
	}
	slices.Sort(ends)
	if p.queue >= len(ends) {
		return 0
	}
	return span(max(ends[p.queue], 1))
}

// reset is how many minutes until a place has more of its quota.
func (m *month) reset(p *place) int {
	if p.name != "quota" {
		return minutes - m.now // credits come with the next month
	}
	if m.now < saturday {
		return saturday - m.now
	}
	return week - (m.now-saturday)%week
}

func (m *month) place(name string) *place {
	for _, p := range m.places {
		if p.name == name {
			return p
		}
	}
	return nil
}

// launch asks the policy for a task that waits, and the platform for a place.
func (m *month) launch(t *task) {
	for range m.places { // who is refused on one rung asks again at once
		c := m.policy.choose(m.rungs(t), ladder.Job{Left: t.flops - t.kept, Milestone: milestone * time.Minute})
		if c.Kind != ladder.Launch {
			if p := m.place(c.Platform); p != nil {
				p.queue++
			}
			return
		}
		p := m.place(c.Platform)
		if p.running >= p.slots {
			p.series++
			this, _ := park(p.series)
			p.until = m.now + max(int(this/time.Minute), 1)
			continue
		}
		p.series, p.until = 0, 0
		p.running++
		t.on, t.began, t.fresh = p, m.now, 0
		t.want(nil)
		t.starts++
		t.dies = m.now + min(lifetime(m.seed, t, p), minutes)
		m.sum.launches++
		return
	}
}

// work is one minute of a task on its place.
func (m *month) work(t *task) {
	p := t.on
	m.pay(p)
	at := m.now - t.began
	switch {
	case at < p.start:
		t.lost++
	default:
		t.fresh += p.rate * 60
	}
	switch {
	case t.kept+t.fresh >= t.flops:
		t.fresh = t.flops - t.kept
		m.keep(t)
		m.leave(t)
		t.ended = m.now + 1
	case p.session > 0 && at+1 >= p.session, p.counted && p.left <= 0, m.now >= t.dies, p.running > p.slots && p.mtbf > 0:
		m.sum.taken++
		m.leave(t)
	case at >= p.start && (at-p.start+1)%milestone == 0:
		m.keep(t)
		m.climb(t)
	}
}

// climb is what happens right behind a milestone: who has wanted to leave for one interval, and still does, leaves.
func (m *month) climb(t *task) {
	was := t.wants
	t.want(nil)
	c := m.policy.choose(m.rungs(t), ladder.Job{Left: t.flops - t.kept, Milestone: milestone * time.Minute, On: t.on.name})
	if c.Kind != ladder.Move {
		return
	}
	if t.want(m.place(c.Platform)); was == t.wants {
		m.sum.moves++
		m.leave(t)
	}
}

// want notes the place for which a task leaves at its next milestone; that place holds a slot for it.
func (t *task) want(p *place) {
	if t.wants != nil {
		t.wants.wanted--
	}
	if t.wants = p; p != nil {
		p.wanted++
	}
}

func (m *month) keep(t *task) {
	t.kept += t.fresh
	m.sum.work += t.fresh
	if t.on.price.Unit == ladder.QuotaUnit {
		m.sum.free += t.fresh
	}
	t.fresh = 0
}

// leave ends a stay; what is not kept is lost.
func (m *month) leave(t *task) {
	t.lost += t.fresh / t.on.rate / 60
	t.fresh = 0
	t.on.running--
	t.on = nil
	if t.kept >= t.flops {
		t.want(nil)
	}
}

func (m *month) pay(p *place) {
	switch p.price.Unit {
	case ladder.QuotaUnit:
		m.sum.quotaH += 1.0 / 60
		p.left--
	case "credits":
		m.sum.paidH += 1.0 / 60
		m.sum.credits += p.price.PerHour / 60
		p.left--
	default:
		m.sum.paidH += 1.0 / 60
		m.sum.usd += p.price.PerHour / 60
	}
}
