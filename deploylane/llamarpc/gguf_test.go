//go:build llama

package llamarpc_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// The model of the tests: random weights out of a fixed seed, one token a byte.
const (
	modelLayers = 8
	modelWidth  = 64
	modelHeads  = 4
	modelInner  = 128
	modelTokens = 3 + 256
)

// gguf writes a file of the format's version 3: magic, keys and values, tensors' names and places, and 32-byte aligned data.
type gguf struct {
	bytes.Buffer
	keys, tensors bytes.Buffer
	nKeys         uint64
	nTensors      uint64
	data          bytes.Buffer
	rng           *rand.Rand
}

func put(b *bytes.Buffer, v any) { binary.Write(b, binary.LittleEndian, v) }

func text(b *bytes.Buffer, s string) {
	put(b, uint64(len(s)))
	b.WriteString(s)
}

// The value types that are used here.
const (
	typeU32    = uint32(4)
	typeI32    = uint32(5)
	typeF32    = uint32(6)
	typeString = uint32(8)
	typeArray  = uint32(9)
)

func (g *gguf) key(name string, kind uint32, v any) {
	g.nKeys++
	text(&g.keys, name)
	put(&g.keys, kind)
	if s, ok := v.(string); ok {
		text(&g.keys, s)
		return
	}
	put(&g.keys, v)
}

func (g *gguf) list(name string, kind uint32, n int, each func(*bytes.Buffer, int)) {
	g.nKeys++
	text(&g.keys, name)
	put(&g.keys, typeArray)
	put(&g.keys, kind)
	put(&g.keys, uint64(n))
	for i := range n {
		each(&g.keys, i)
	}
}

// tensor adds f32 weights; a norm is all ones.
func (g *gguf) tensor(name string, norm bool, shape ...uint64) {
	g.nTensors++
	text(&g.tensors, name)
	put(&g.tensors, uint32(len(shape)))
	n := uint64(1)
	for _, d := range shape {
		put(&g.tensors, d)
		n *= d
	}
	put(&g.tensors, uint32(0)) // f32
	put(&g.tensors, uint64(g.data.Len()))
	for range n {
		v := float32(1)
		if !norm {
			v = float32(g.rng.NormFloat64() / math.Sqrt(modelWidth))
		}
		put(&g.data, v)
	}
	g.data.Write(make([]byte, -g.data.Len()&31))
}

// writeModel makes the model at path.
func writeModel(t *testing.T, path string) {
	t.Helper()
	g := &gguf{rng: rand.New(rand.NewPCG(20261130, 6))}
	g.key("general.architecture", typeString, "llama")
	g.key("general.name", typeString, "headway-test")
	for _, k := range []struct {
		name string
		v    uint32
	}{{"context_length", 512}, {"embedding_length", modelWidth}, {"block_count", modelLayers}, {"feed_forward_length", modelInner},
		{"attention.head_count", modelHeads}, {"attention.head_count_kv", modelHeads}, {"rope.dimension_count", modelWidth / modelHeads}, {"vocab_size", modelTokens}} {
		g.key("llama."+k.name, typeU32, k.v)
	}
	g.key("llama.attention.layer_norm_rms_epsilon", typeF32, float32(1e-5))
	g.key("tokenizer.ggml.model", typeString, "llama")
	for i, k := range []string{"unknown_token_id", "bos_token_id", "eos_token_id"} {
		g.key("tokenizer.ggml."+k, typeU32, uint32(i))
	}
	special := []string{"<unk>", "<s>", "</s>"}
	g.list("tokenizer.ggml.tokens", typeString, modelTokens, func(b *bytes.Buffer, i int) {
		if i < 3 {
			text(b, special[i])
			return
		}
		text(b, fmt.Sprintf("<0x%02X>", i-3))
	})
	g.list("tokenizer.ggml.scores", typeF32, modelTokens, func(b *bytes.Buffer, i int) { put(b, float32(0)) })
	g.list("tokenizer.ggml.token_type", typeI32, modelTokens, func(b *bytes.Buffer, i int) { put(b, []int32{2, 3, 3, 6}[min(i, 3)]) })
	g.tensor("token_embd.weight", false, modelWidth, modelTokens)
	for i := range modelLayers {
		at := fmt.Sprintf("blk.%d.", i)
		g.tensor(at+"attn_norm.weight", true, modelWidth)
		for _, n := range []string{"attn_q", "attn_k", "attn_v", "attn_output"} {
			g.tensor(at+n+".weight", false, modelWidth, modelWidth)
		}
		g.tensor(at+"ffn_norm.weight", true, modelWidth)
		g.tensor(at+"ffn_gate.weight", false, modelWidth, modelInner)
		g.tensor(at+"ffn_up.weight", false, modelWidth, modelInner)
		g.tensor(at+"ffn_down.weight", false, modelInner, modelWidth)
	}
	g.tensor("output_norm.weight", true, modelWidth)
	g.tensor("output.weight", false, modelWidth, modelTokens)
	g.WriteString("GGUF")
	put(&g.Buffer, uint32(3))
	put(&g.Buffer, g.nTensors)
	put(&g.Buffer, g.nKeys)
	g.Write(g.keys.Bytes())
	g.Write(g.tensors.Bytes())
	g.Write(make([]byte, -g.Len()&31))
	g.Write(g.data.Bytes())
	if err := os.WriteFile(path, g.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
