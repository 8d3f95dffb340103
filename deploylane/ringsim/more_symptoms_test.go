package ringsim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// R8: a prompt without its turn format is a document to go on with: it ends by length.
func TestR8NoTurnFormat(t *testing.T) {
	for _, templates := range []bool{false, true} {
		cfg := ringsim.Post()
		cfg.Rules.ServerHasTemplates = templates
		world(t, cfg, func(t *testing.T, c *careless) {
			c.mustLoad()
			r, err := c.query(ring.Query{ID: "raw", Prompt: []byte("say hello"), MaxTokens: 24})
			if err != nil || (r.Stop == ring.StopEnd) != templates || !templates && r.Count != 24 {
				t.Errorf("templates %v: %+v %v", templates, r, err)
			}
		})
	}
}

// R9: what exceeds the loaded profile is refused, in output and in prompt.
func TestR9ARequestOverTheProfile(t *testing.T) {
	world(t, ringsim.Post(), func(t *testing.T, c *careless) {
		c.mustLoad()
		for _, q := range []ring.Query{
			{ID: "output", Prompt: ringsim.Render("x"), MaxTokens: 1025},
			{ID: "prompt", Prompt: ringsim.Render(strings.Repeat("word", 4096)), MaxTokens: 8},
		} {
			_, err := c.query(q)
			if over, ok := errors.AsType[ring.TooLarge](err); !ok || over.Why != "request exceeds the loaded resource profile" {
				t.Errorf("%s: %v", q.ID, err)
			}
		}
	})
}

// R10: a load before the old one's memory is back dies in the middle of its weights; with memory that never comes back,
// every later one does.
func TestR10MemoryIsNotBackYet(t *testing.T) {
	for _, stays := range []bool{false, true} {
		cfg := ringsim.Post()
		cfg.Rules.MemoryStays = stays
		for i := range cfg.Hosts {
			cfg.Hosts[i].Memory, cfg.Hosts[i].Back = 80<<30, 30*time.Minute
		}
		world(t, cfg, func(t *testing.T, c *careless) {
			c.mustLoad()
			for i := range 4 {
				c.unload(i)
			}
			again := caller(t, c.w, "again", generation+1)
			got := again.load()
			for _, a := range got {
				if a.Status != ring.Failed || !strings.Contains(a.Detail, "out of memory at ") {
					t.Errorf("%+v", a)
				}
			}
			lost(t, c, time.Minute, 15*time.Minute)
			later(time.Hour)
			third := caller(t, c.w, "third", generation+2)
			for _, a := range third.load() {
				if (a.Status == ring.Succeeded) == stays {
					t.Errorf("memory stays %v: %+v", stays, a)
				}
			}
		})
	}
}

// R11: who leaves without FINISH leaks a slot for ever. At none free nobody new gets in and no line says so, and the
// connections that are open go on serving.
func TestR11SlotsLeak(t *testing.T) {
	for _, optional := range []bool{false, true} {
		cfg := ringsim.Post()
		cfg.Rules.FinishOptional = optional
		cfg.Hosts[0].Slots = 8
		world(t, cfg, func(t *testing.T, c *careless) {
			c.mustLoad()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			old, err := c.Session(ctx, c.route)
			if err != nil {
				t.Fatal(err)
			}
			free := c.inspect(h1).Slots.Free + 1 // the asker's own comes back
			before := len(c.w.Log("h1"))
			for i := range free {
				rude := caller(t, c.w, fmt.Sprintf("rude%d", i), generation)
				if _, err := rude.Session(ctx, rude.route); err != nil {
					t.Fatal(err)
				}
				rude.Vanish()
			}
			_, err = c.Session(ctx, c.route)
			if silent, ok := errors.AsType[ring.NoAnswer](err); ok == optional || ok && silent.Last != "" {
				t.Errorf("FINISH optional %v: %v", optional, err)
			}
			still, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if r, err := old.Request(still, ring.Query{ID: "old", Prompt: ringsim.Render("x"), MaxTokens: 32}); err != nil || r.Stop != ring.StopEnd {
				t.Errorf("an old connection: %+v %v", r, err)
			}
			old.Finish(still)
			if log := c.w.Log("h1"); len(log) != before {
				t.Errorf("%q", log)
			}
		})
	}
}

// R12: an UNLOAD says what it found: absent, another generation, another load, busy.
func TestR12UnloadNamesWhatIsThere(t *testing.T) {
	world(t, ringsim.Post(), func(t *testing.T, c *careless) {
		if a, err := c.unload(0); err != nil || a.Status != ring.Rejected || a.Resource != ring.Absent {
			t.Errorf("absent: %+v %v", a, err)
		}
		c.mustLoad()
		for what, alter := range map[string]func(*careless){
			"node": func(x *careless) { x.meta[0].Generation++ },
			"load": func(x *careless) { x.route.Load++ },
		} {
			other := caller(t, c.w, "other-"+what, generation)
			alter(other)
			if a, err := other.unload(0); err != nil || a.Status != ring.Rejected || a.Resource != ring.Present {
				t.Errorf("%s: %+v %v", what, a, err)
			}
		}
		c.w.FreezeServer("h2", "step37-s3", true)
		if _, err := c.ask("stuck"); !errors.As(err, new(ring.NoAnswer)) {
			t.Errorf("a frozen stage: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, _ := c.Session(ctx, ring.Route{Via: h1, Load: generation, Stages: c.route.Stages[:3]})
		if s == nil {
			t.Fatal("three stages are ready")
		}
		s.Request(ctx, ring.Query{ID: "hangs", Prompt: ringsim.Render("x"), MaxTokens: 8})
		end, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s.Finish(end)
		if a, err := c.unload(0); err != nil || a.Status != ring.Rejected || !strings.HasPrefix(a.Detail, "busy") {
			t.Errorf("busy: %+v %v", a, err)
		}
	})
}

// R13: layers that do not tile load well and answer nonsense to the length; a forgotten override takes the whole model
// into every stage's memory.
func TestR13LayersThatDoNotTile(t *testing.T) {
	for what, alter := range map[string]func(*ring.StageLoad){
		"gap":     func(b *ring.StageLoad) { b.Layers[0]++; b.KV = b.Layers },
		"overlap": func(b *ring.StageLoad) { b.Layers[0]--; b.KV = b.Layers },
		"cache":   func(b *ring.StageLoad) { b.KV[0]++ },
	} {
		world(t, ringsim.Post(), func(t *testing.T, c *careless) {
			alter(&c.body[2])
			c.mustLoad()
			r, err := c.ask("one")
			if err != nil || r.Stop != ring.StopLength || string(r.Text) == string(ringsim.Answer(ringsim.Render("say one"))) {
				t.Errorf("%s: %+v %v", what, r, err)
			}
		})
	}
	world(t, ringsim.Post(), func(t *testing.T, c *careless) {
		c.spoil(func(_ *ring.Metadata, b *ring.StageLoad) { b.Override = nil })
		failed := 0
		for _, a := range c.load() {
			if a.Status == ring.Failed && strings.Contains(a.Detail, "out of memory at ") {
				failed++
			}
		}
		if failed == 0 {
			t.Error("two whole models of 113 GiB fit in 128 GiB")
		}
		lost(t, c, 19*time.Minute, 90*time.Minute)
	})
}

// R14: two releasers at once each get a part of the ring, and no session of either is whole.
func TestR14TwoReleasers(t *testing.T) {
	world(t, ringsim.Post(), func(t *testing.T, c *careless) {
		other := caller(t, c.w, "other", generation+1)
		done := make(chan []answered)
		go func() {
			var out []answered
			for _, i := range []int{3, 2} { // it began at the other end
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				a, err := other.Load(ctx, other.command(i, ring.ContentLoad, other.body[i]))
				cancel()
				out = append(out, answered{a, err})
			}
			done <- out
		}()
		later(time.Second)
		for i := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			c.Load(ctx, c.command(i, ring.ContentLoad, c.body[i]))
			cancel()
		}
		theirs := <-done
		want(t, theirs[:1], ring.Succeeded, ring.Present, "")
		for _, who := range []*careless{c, other} {
			if _, err := who.ask("whose"); !errors.As(err, new(ring.StageFailed)) {
				t.Errorf("load %d: %v", who.route.Load, err)
			}
		}
	})
}
