package ring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/headway-run/headway/deploylane/preflight"
)

// Intent is lane/<model>/ring/<ring>/load/<generation>.json: what is about to be loaded, created once and durable
// before the first command leaves, here first and then in the store. UNLOAD needs its generation and its nodes, and
// they may be nowhere else.
type Intent struct {
	Schema     int                  `json:"schema"` // 1
	Why        string               `json:"why"`    // for whoever opens it
	Model      string               `json:"model"`
	Ring       string               `json:"ring"`
	Release    string               `json:"release"` // digest of the release's record
	Weights    Weights              `json:"weights"`
	Plan       string               `json:"plan"` // the file's text: a rollback loads by it
	PlanDigest string               `json:"plan_digest"`
	Prompts    []Prompt             `json:"prompts"`             // of its canary
	Overrides  []preflight.Override `json:"overrides,omitempty"` // who let what pass, for this load
	Generation uint64               `json:"generation"`
	Stages     []IntentStage        `json:"stages"`
	Engine     string               `json:"engine"`
	Preflight  string               `json:"preflight"`          // sha256 of the report that let it pass
	Replaces   uint64               `json:"replaces,omitempty"` // generation that is unloaded first; 0: none
	By         string               `json:"by"`
	Nonce      string               `json:"nonce"` // whose record this is
	At         string               `json:"at"`    // the store's clock, for people
}

// IntentStage is where a node is to be.
type IntentStage struct {
	Node  string `json:"node"`
	Host  string `json:"host"`
	Agent string `json:"agent"`
}

// whyKept is in every intent.
const whyKept = "UNLOAD needs this generation and these nodes, and they may be written nowhere else; keep this record until its events say gone or abandoned"

// maxIntent bounds an intent, bytes.
const maxIntent = 1 << 20

func (i *Intent) names(node string) bool {
	return slices.ContainsFunc(i.Stages, func(s IntentStage) bool { return s.Node == node })
}

// DecodeIntent reads an intent strictly.
func DecodeIntent(b []byte) (Intent, error) {
	var i Intent
	if err := strict(b, maxIntent, &i); err != nil {
		return Intent{}, fmt.Errorf("the record of a load: %w", err)
	}
	if i.Schema != 1 || i.Generation == 0 || i.Generation > maxGeneration || len(i.Stages) == 0 || len(i.Stages) > maxStages || i.Ring == "" {
		return Intent{}, fmt.Errorf("the record of a load: schema %d, generation %d, %d stages, ring %q: not one of ours", i.Schema, i.Generation, len(i.Stages), clip(i.Ring))
	}
	return i, nil
}

// strict decodes one JSON value without unknown fields.
func strict(b []byte, most int, into any) error {
	if len(b) > most {
		return fmt.Errorf("%d bytes, at most %d", len(b), most)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("more than one value")
	}
	return nil
}

// Prompt is one line of the canary's file: rendered by its writer, since the engine applies no turn format.
type Prompt struct {
	Format    string `json:"format"`
	Text      string `json:"text"`
	MaxTokens int    `json:"max_tokens"`
	Want      string `json:"want,omitempty"` // the reply must contain it; "": any
}

// ReadPrompts reads the canary's prompts, one JSON object a line; file is what errors call it.
func ReadPrompts(file string, b []byte) ([]Prompt, error) {
	const most = 100
	var out []Prompt
	for i, line := range bytes.Split(b, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var p Prompt
		if err := strict(line, 64<<10, &p); err != nil {
			return nil, fmt.Errorf("%s:%d:1: no prompt: %w: expected {\"format\", \"text\", \"max_tokens\", \"want\"} on one line", file, i+1, err)
		}
		if p.Text == "" || p.Format == "" {
			return nil, fmt.Errorf("%s:%d:1: a prompt without text or format: expected both", file, i+1)
		}
		if out = append(out, p); len(out) > most {
			return nil, fmt.Errorf("%s:%d:1: more than %d prompts: expected a canary, not a benchmark", file, i+1, most)
		}
	}
	return out, nil
}

// clip bounds foreign text in a message.
func clip(s string) string { return upTo(s, 300) }

// bounded is a whole sentence with foreign text in it.
func bounded(s string) string { return upTo(s, 2000) }

func upTo(s string, most int) string {
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}
