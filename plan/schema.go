package plan

import (
	"bytes"
	_ "embed" // schema.json and headway.schema.json
	"encoding/json"
	"fmt"
	"strings"

	"github.com/headway-run/headway/plan/flops"
)

//go:embed schema.json
var schemaJSON []byte

//go:embed headway.schema.json
var configSchemaJSON []byte

// Schema is the JSON Schema (draft 2020-12) of a plan file, from which editors complete and check. It is looser than
// Load: what needs more than one value, or the repository, only Load can judge.
func Schema() []byte { return bytes.Clone(schemaJSON) }

// ConfigSchema is the JSON Schema of headway.yaml.
func ConfigSchema() []byte { return bytes.Clone(configSchemaJSON) }

// Patterns of the schema; the same forms as the readers accept. (Values of a table.)
const (
	namePattern     = `^[0-9A-Za-z][0-9A-Za-z._-]{0,127}$`
	jobPattern      = `^[0-9A-Za-z][0-9A-Za-z._=+-]{0,127}$`
	keepPattern     = `^(forever|(\d{1,9}d)?(\d{1,9}h)?(\d{1,9}m)?(\d{1,9}s)?(\d{1,9}ms)?)$`
	durationPattern = `^(\d{1,9}d)?(\d{1,9}h)?(\d{1,9}m)?(\d{1,9}s)?(\d{1,9}ms)?$`
	everyPattern    = `^([1-9]\d* steps?|(\d{1,9}d)?(\d{1,9}h)?(\d{1,9}m)?(\d{1,9}s)?(\d{1,9}ms)?)$`
	pathPattern     = `^[^/\\].*$`
	quantityPattern = `^\d+(\.\d+)?([eE][+-]?\d+)?[KkMBGT]?$`
	amountPattern   = `^\d+(\.\d+)?( [A-Za-z]{1,16})?$`
	pricePattern    = `^\d+(\.\d+)?( [A-Za-z]{1,16})?/h$`
	sharePattern    = `^\d+(\.\d+)?%$`
	labelPattern    = `^[0-9A-Za-z][0-9A-Za-z._/-]*=.+$`
)

type object = map[string]any

// buildSchema makes schema.json from the table of fields.
func buildSchema() []byte {
	job := object{"type": "object", "additionalProperties": false, "properties": properties("")}
	return encodeSchema(object{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "headway plan file",
		"type":                 "object",
		"additionalProperties": false,
		"required":             []string{"jobs"},
		"properties": object{
			"jobs": object{"type": "object", "description": "Jobs by name.", "propertyNames": object{"pattern": namePattern}, "additionalProperties": object{"$ref": "#/$defs/job"}},
		},
		"$defs": object{"job": job, "value": valueSchema()},
	})
}

func encodeSchema(v any) []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // maps, lists and text only: always encodable
	}
	return append(b, '\n')
}

func properties(prefix string) object {
	out := object{}
	for _, k := range keysUnder(prefix) {
		if i, ok := leafIndex[prefix+k]; ok {
			out[k] = fieldSchema(leaves[i].Field)
			continue
		}
		sub := object{"type": "object", "additionalProperties": false, "properties": properties(prefix + k + ".")}
		if k == "gpu" {
			any := leaves[leafIndex["gpu.any"]].Field
			sub = object{"description": any.Doc, "oneOf": []object{sub, fieldSchema(any)}}
		}
		out[k] = sub
	}
	return out
}

// fieldSchema is what one field accepts.
func fieldSchema(f Field) object {
	o := typeSchema(f)
	o["description"] = f.describe()
	return o
}

// describe is the field's documentation in one paragraph.
func (f Field) describe() string {
	s := f.Doc
	if f.Sort != "" {
		s += " (" + string(f.Sort) + ")"
	}
	if f.Default != "" {
		s += " Default: " + f.Default + "."
	}
	return s
}

func text(pattern string) object { return object{"type": "string", "pattern": pattern} }

func valueSchema() object { return object{"type": []string{"string", "number", "boolean"}} }

func typeSchema(f Field) object {
	list := func(items object) object {
		return object{"type": "array", "uniqueItems": true, "items": items}
	}
	switch f.Type {
	case TypeName:
		return text(namePattern)
	case TypeInt:
		return object{"type": "integer"}
	case TypeNumber:
		return object{"type": "number"}
	case TypeBool:
		return object{"type": "boolean"}
	case TypeDuration:
		return object{"type": "string", "pattern": durationPattern, "minLength": 2}
	case TypeEvery:
		return object{"type": "string", "pattern": everyPattern, "minLength": 2}
	case TypeAmount:
		return object{"oneOf": []object{text(amountPattern), {"type": "number", "exclusiveMinimum": 0}}}
	case TypePrice:
		return text(pricePattern)
	case TypeKeep:
		return object{"type": "string", "pattern": keepPattern, "minLength": 2}
	case TypePercent:
		return text(sharePattern)
	case TypePath:
		return text(pathPattern)
	case TypeList:
		return list(object{"type": "string", "minLength": 1})
	case TypeNames:
		if len(f.Allowed) > 0 {
			return list(object{"enum": f.Allowed})
		}
		return list(text(jobPattern))
	case TypeWho:
		return object{"type": "object", "propertyNames": object{"pattern": namePattern},
			"additionalProperties": object{"type": "array", "minItems": 1, "uniqueItems": true, "items": text(labelPattern)}}
	case TypeInts:
		return list(object{"type": "integer", "minimum": 1, "maximum": 255})
	case TypePolicies:
		return object{"type": "array", "maxItems": MaxPolicies, "items": object{"type": "object", "additionalProperties": false, "required": policyKeys,
			"properties": object{"log": object{"type": "string", "minLength": 1, "maxLength": MaxPattern}, "then": object{"enum": thens}}}}
	case TypeNotify:
		return object{"type": "array", "maxItems": MaxNotify, "items": object{"type": "object", "additionalProperties": false, "required": []string{"to", "on"},
			"properties": object{
				"to":   object{"type": "object", "additionalProperties": false, "required": []string{"secret"}, "properties": object{"secret": object{"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}}},
				"form": object{"enum": notifyForms},
				"on":   object{"type": "array", "uniqueItems": true, "minItems": 1, "items": object{"enum": notifyEvents}},
			}}}
	case TypeMap:
		o := object{"type": "object", "additionalProperties": object{"$ref": "#/$defs/value"}}
		if len(f.Allowed) > 0 {
			o["additionalProperties"] = object{"enum": f.Allowed}
		}
		return o
	case TypeWork:
		return object{"type": "object", "additionalProperties": false, "properties": workProperties(flops.Keys)}
	case TypeMatrix:
		return object{"type": "object", "propertyNames": object{"pattern": `^(seed|replica|params\..+|env\..+)$`},
			"additionalProperties": object{"type": "array", "minItems": 1, "uniqueItems": true, "items": object{"$ref": "#/$defs/value"}}}
	}
	if len(f.Allowed) > 0 {
		return object{"enum": f.Allowed}
	}
	return object{"type": "string"}
}

func workProperties(keys []flops.Key) object {
	out := object{}
	for _, k := range keys {
		var o object
		switch k.Type {
		case flops.Choice:
			o = object{"enum": k.Choices}
		case flops.Layers:
			o = object{"type": "array", "items": object{"type": "object", "additionalProperties": false, "properties": workProperties(k.Keys)}}
		default:
			o = object{"oneOf": []object{{"type": "number", "minimum": 0}, text(quantityPattern)}}
		}
		o["description"] = k.Doc
		out[k.Name] = o
	}
	return out
}

// buildConfigSchema makes headway.schema.json.
func buildConfigSchema() []byte {
	platform := object{}
	for _, f := range platformKeys {
		platform[f.Name] = fieldSchema(f)
	}
	props := object{}
	for _, f := range configKeys {
		top, sub, nested := strings.Cut(f.Name, ".")
		switch {
		case f.Type == TypePlatform:
			props[top] = object{"type": "object", "description": f.Doc, "propertyNames": object{"pattern": namePattern},
				"additionalProperties": object{"type": "object", "required": []string{"runner"}, "properties": platform, "additionalProperties": object{"$ref": "#/$defs/value"}}}
		case nested && !strings.Contains(sub, "."):
			o, _ := props[top].(object)
			if o == nil {
				o = object{"type": "object", "additionalProperties": false, "properties": object{}}
				props[top] = o
			}
			inner, _ := o["properties"].(object)
			inner[sub] = fieldSchema(f)
		case !nested:
			props[top] = fieldSchema(f)
		}
	}
	if o, ok := props["defaults"].(object); ok {
		inner, _ := o["properties"].(object)
		inner["limits"] = object{"type": "object", "additionalProperties": false, "properties": properties("limits.")}
	}
	return encodeSchema(object{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                ConfigFile,
		"type":                 "object",
		"additionalProperties": false,
		"required":             []string{"headway"},
		"properties":           props,
		"$defs":                object{"value": valueSchema()},
	})
}

// FieldsMarkdown is the documentation of every field as Markdown tables: jobs, headway.yaml, one platform, work.
func FieldsMarkdown() string {
	var b strings.Builder
	b.WriteString("### Fields of a job\n\n| field | holds | changing it | default | meaning |\n|---|---|---|---|---|\n")
	meaning := map[Sort]string{Identity: "identity: other work", Placement: "placement: in place", Metadata: "metadata"}
	for _, f := range Fields() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.holds(), meaning[f.Sort], cell(f.Default), cell(f.Doc))
	}
	b.WriteString("\n### Keys of `work`\n\n| key | meaning |\n|---|---|\n")
	for _, k := range flops.Keys {
		fmt.Fprintf(&b, "| `%s` | %s |\n", k.Name, cell(k.Doc))
		for _, s := range k.Keys {
			fmt.Fprintf(&b, "| `%s[].%s` | %s |\n", k.Name, s.Name, cell(s.Doc))
		}
	}
	for _, t := range []struct {
		title  string
		fields []Field
	}{{"Fields of headway.yaml", configKeys}, {"Fields of a platform", platformKeys}} {
		fmt.Fprintf(&b, "\n### %s\n\n| field | holds | default | meaning |\n|---|---|---|---|\n", t.title)
		for _, f := range t.fields {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.holds(), cell(f.Default), cell(f.Doc))
		}
	}
	return b.String()
}

// holds says what is written, with an example.
func (f Field) holds() string {
	s := string(f.Type)
	if len(f.Allowed) > 0 {
		s = strings.Join(f.Allowed, ", ")
	}
	if f.Example != "" {
		s += ", such as `" + f.Example + "`"
	}
	return cell(s)
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
