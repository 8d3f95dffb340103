package ringsim

import (
	"time"

	"github.com/headway-run/headway/deploylane/ring"
)

const gib = 1 << 30

// Where the post's model lies on each of its hosts, and what it is.
const (
	PostModel  = "/models/step37-q4.gguf"
	PostDigest = "sha256:3737373737373737373737373737373737373737373737373737373737373737"
	PostLayers = 45
	PostHidden = 4096
)

// Post is the world of the post-mortem in good order: two hosts of four devices, their agents at tcp://h1.ring:42011 and
// tcp://h2.ring:42012, a model of 45 layers and 113 GiB, and disks on which the largest of its four stages takes twenty
// minutes. What a test wants wrong, it changes in it.
func Post() Config {
	host := func(name, listen, advertise string) Host {
		h := Host{
			Name: name, Listen: listen, Advertise: advertise, Release: "v0.9.0", Build: "v0.9.0+g1a2b3c4",
			Needs:    []string{"physical-v4", "layer-window"},
			Native:   ring.Native{Path: "/opt/p4/p4_staged_server", SHA256: "5e4e000000000000000000000000000000000000000000000000000000000001", Release: "v0.9.0", Backend: "hip", Hello: []string{"physical-v4", "layer-window", "backend=hip"}},
			Models:   []Weights{{Path: PostModel, Digest: PostDigest, Bytes: 113 * gib, Whole: 113 * gib, Layers: PostLayers, Hidden: PostHidden, Cut: 2}},
			Retained: 256 << 20, Memory: 128 * gib, ReadRate: 26 << 20, Back: 20 * time.Second,
			Journal: Journal{Dir: "/var/lib/p4/journal", Free: 20 * gib},
		}
		for _, d := range []string{"ROCm0", "ROCm1", "ROCm2", "ROCm3"} {
			h.Devices = append(h.Devices, ring.Device{Name: d, Free: 64 * gib, Total: 64 * gib})
		}
		return h
	}
	return Config{Hosts: []Host{
		host("h1", "0.0.0.0:42011", "tcp://h1.ring:42011"),
		host("h2", "0.0.0.0:42012", "tcp://h2.ring:42012"),
	}}
}
