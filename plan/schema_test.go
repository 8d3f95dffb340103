package plan

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headway-run/headway/plan/flops"
)

func TestSchemaIsTheTable(t *testing.T) {
	golden(t, "schema.json", buildSchema())
	golden(t, "headway.schema.json", buildConfigSchema())
	golden(t, "testdata/fields.md", []byte(FieldsMarkdown()))
}

func TestDTypesAreThoseOfFlops(t *testing.T) {
	var modes []string
	for _, m := range flops.Modes {
		modes = append(modes, string(m))
	}
	if d := cmp.Diff(modes, dtypes); d != "" {
		t.Error(d)
	}
}

func TestEveryFieldIsDocumented(t *testing.T) {
	for _, f := range Fields() {
		if f.Doc == "" || f.Sort == "" || f.Type == "" || !strings.HasSuffix(f.Doc, ".") {
			t.Errorf("%s: incomplete row %+v", f.Name, f)
		}
	}
}

// compileSchema reads a schema with a validator of draft 2020-12.
func compileSchema(t testing.TB, schema []byte) *jsonschema.Schema {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", v); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON gives a node's value the way an editor's YAML reader would.
func asJSON(n *node) any {
	switch n.Kind {
	case mappingNode:
		m := make(map[string]any)
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = asJSON(n.Content[i+1])
		}
		return m
	case sequenceNode:
		l := []any{}
		for _, c := range n.Content {
			l = append(l, asJSON(c))
		}
		return l
	}
	switch {
	case !isPlain(n):
		return n.Value
	case n.Value == "true" || n.Value == "false":
		return n.Value == "true"
	case isNull(n):
		return nil
	case isDecimal(n.Value):
		return json.Number(n.Value)
	}
	return n.Value
}

func validate(t *testing.T, s *jsonschema.Schema, file, text string) error {
	t.Helper()
	root, ps := parse(file, []byte(text))
	if ps.bad() {
		t.Fatal(ps.list)
	}
	return s.Validate(asJSON(root))
}

func TestSchemaAcceptsWhatLoadAccepts(t *testing.T) {
	if err := validate(t, compileSchema(t, ConfigSchema()), ConfigFile, specConfig); err != nil {
		t.Error(err)
	}
	s := compileSchema(t, Schema())
	if err := validate(t, s, "p.yaml", specPlan); err != nil {
		t.Error(err)
	}
	if err := validate(t, s, "p.yaml", everyField); err != nil {
		t.Error(err)
	}
}

// TestSchemaRefuses holds the schema to the mistakes that it can see.
func TestSchemaRefuses(t *testing.T) {
	s := compileSchema(t, Schema())
	for i, bad := range []string{
		"{setps: 1}", "{seed: 3.7}", "{seed: '7'}", "{kind: [train]}", "{suspend: 'yes'}", "{trust: nobody}",
		"{limits: {wall: 36}}", "{limits: {wal: 36h}}", "{limits: {price: 3 USD}}", "{milestones: {every: 200}}",
		"{gpu: {dtype: fp12}}", "{work: {param: 3}}", "{metrics: {a: up}}", "{code: /abs}", "{on: here}",
		"{matrix: {lr: [1]}}", "{matrix: {seed: []}}", "{matrix: {seed: [1, 1]}}", "{needs: ['-x']}",
	} {
		if validate(t, s, "p.yaml", "jobs: {a: "+bad+"}") == nil {
			t.Errorf("%s %s passes the schema", strconv.Itoa(i), bad)
		}
	}
}
