package ring

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
)

// Plan is a ring plan: what people review. It holds inputs; a number that the engine compares with another one, or that
// follows from these, is derived here and refused in the file.
type Plan struct {
	Ring    string
	Engine  EnginePlan
	Hosts   []Host // in the order of the file
	Shape   Shape
	Stages  []Stage // ring order
	Canary  Canary
	Catalog Catalog
	Digest  string // sha256 of the file's bytes, hex
}

// EnginePlan names one release of one engine.
type EnginePlan struct {
	Adapter string
	Release string
	Needs   []string // capabilities that the native server must report, name or name=value, beside what the agent wants
}

// Host is one machine with its agent.
type Host struct {
	Name     string
	Agent    string // its identity, byte for byte as it advertises itself: tcp://host:port
	Listen   string // host:port; "": not stated
	Retained uint64 // bytes of the agent's store
	Path     string // of the native server
	SHA256   string // of that file
	Backend  string
	Need     uint64 // bytes of memory that must be free before a load
	Pos      plan.Pos
}

// Shape is the profile that every stage is loaded with.
type Shape struct {
	Batch, Ubatch, Parallel uint64
	Context                 uint64 // tokens of one sequence, prompt and output
	Completion              uint64 // bytes: cap of one result
	Output                  uint64 // tokens that one request may ask for
	Pos                     plan.Pos
}

// Stage is one part of the model.
type Stage struct {
	Node     string
	Host     string
	Layers   [2]int // [begin, end)
	Device   string // as the backend on its host names it
	Mask     string // devices that the native server may see; "": all
	Endpoint string // of the native server, from its own host
	Pos      plan.Pos
}

// Canary is the proof that a loaded ring serves.
type Canary struct {
	Rounds   int           // of request and closed receipt, at least 3: the first good answer proves nothing
	Gap      time.Duration // idle, before the last round
	Deadline time.Duration // of each answer
	Prompts  string        // path in the deploy repository
	Format   string        // the turn format that prompts are rendered in: the engine applies none
	Finish   Stop
}

// Catalog is what clients may use, written only after the canary.
type Catalog struct {
	Name   string        // where it is, in words that whoever switches understands
	Drain  time.Duration // that requests under way get before an unload
	Tokens uint64        // of the largest prompt that clients of this entry may send
	Output uint64        // that they may ask for
}

// Host finds a host by its name.
func (p *Plan) Host(name string) *Host {
	for i := range p.Hosts {
		if p.Hosts[i].Name == name {
			return &p.Hosts[i]
		}
	}
	return nil
}

// Edge is one connection between stages: the agent of From dials that of To at its advertised address.
type Edge struct{ From, To int }

// Edges lists what stages dial, the way back from the tail to the head included.
func (p *Plan) Edges() []Edge {
	var out []Edge
	if len(p.Stages) < 2 {
		return nil
	}
	for i := range p.Stages {
		out = append(out, Edge{i, (i + 1) % len(p.Stages)})
	}
	return out
}

// Weights is the model of a release, as its lane record names it.
type Weights struct {
	Digest string `json:"digest"` // sha256:<hex>
	Arch   string `json:"arch"`   // key of the engine's cut table
	Layers int    `json:"layers"`
	Hidden uint64 `json:"hidden"` // width of the state between two layers
}

// backends is the table of what each build calls its devices: a name and an index.
var backends = map[string]string{"hip": "ROCm", "cuda": "CUDA", "vulkan": "Vulkan", "sycl": "SYCL", "cpu": "CPU"}

// agentAddress reads an advertised address: tcp, a host and a port, nothing else.
func agentAddress(s string) (host string, ok bool) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "tcp" || u.Hostname() == "" || !isPort(u.Port()) || s != "tcp://"+u.Host {
		return "", false
	}
	return u.Hostname(), true
}

// isPort says that a port is one that can be dialled, written in one way.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// loopbackName says that hosts files and resolvers call the host itself by that name.
func loopbackName(name string) bool {
	switch name {
	case "localhost", "localhost.localdomain", "localhost4", "localhost6", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback":
		return true
	}
	return strings.HasSuffix(name, ".localhost")
}

// unreachable says why no other host can reach an advertised host name or address; "": it may.
func unreachable(host string) string {
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if loopbackName(name) {
		return "a loopback name"
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		if strings.Trim(name, "0123456789.") == "" || strings.HasPrefix(name, "0x") {
			return "a short form of an address, which programs read in different ways"
		}
		return ""
	}
	switch ip = ip.Unmap(); {
	case ip.IsLoopback():
		return "a loopback address"
	case ip.IsUnspecified():
		return "the unspecified address"
	case ip.IsLinkLocalUnicast():
		return "a link-local address"
	case ip.IsMulticast():
		return "a multicast address"
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address"
	case ip.Is4() && ip.As4()[0] == 0:
		return "an address of this host alone"
	}
	return ""
}
