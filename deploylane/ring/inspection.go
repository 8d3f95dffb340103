package ring

// Inspection is what an agent says of itself and its host. A nil pointer or slice is "not reported", which a guard must
// treat as unknown, never as fine. All of it is the agent's claim but Dialled and From.
type Inspection struct {
	From    Viewpoint `json:"from"`
	Dialled string    `json:"dialled"`
	Agent   string    `json:"agent"` // its own identity, as it advertises it; compared byte for byte
	Release string    `json:"release,omitempty"`
	Build   string    `json:"build,omitempty"`

	Slots    *Slots      `json:"slots,omitempty"`
	Journal  *Journal    `json:"journal,omitempty"`
	Retained *uint64     `json:"retained_bytes,omitempty"` // capacity of the store for completions and edges in flight
	Nodes    []Node      `json:"nodes"`
	Buried   []Tombstone `json:"tombstones,omitempty"`
	Needs    []string    `json:"required_capabilities,omitempty"` // that this agent wants of a native server
	Native   *Native     `json:"native,omitempty"`
	Devices  []Device    `json:"devices,omitempty"` // as the native binary on this host lists them
	Memory   *Memory     `json:"memory,omitempty"`
	Models   []Model     `json:"models,omitempty"`
	ClockMS  int64       `json:"clock_ms,omitempty"` // the host's wall clock; never compared with another's but to warn
}

// Slots are connections that an agent takes; at none free it accepts nobody, silently.
type Slots struct {
	Total int `json:"total"`
	Free  int `json:"free"`
}

// Journal is the operational journal, without which an agent refuses every LOAD.
type Journal struct {
	On       bool   `json:"on"`
	Dir      string `json:"dir"`
	Writable bool   `json:"writable"` // by the agent's user, tried
	Free     uint64 `json:"free_bytes"`
}

// Node is a registered node.
type Node struct {
	ID         string   `json:"id"`
	Generation uint64   `json:"generation"`
	Load       *uint64  `json:"load_generation,omitempty"` // older agents do not say
	State      string   `json:"state"`                     // loading, ready, stopped, failed:<why>
	Resource   Resource `json:"resource_state"`
	Busy       int      `json:"busy"` // requests in flight
	Resident   uint64   `json:"resident_bytes"`
}

// Tombstone is the highest generation that a node id ever had on an agent and that is gone.
type Tombstone struct {
	ID         string `json:"id"`
	Generation uint64 `json:"generation"`
}

// Native is the server binary that LOAD would start, asked without a model.
type Native struct {
	Path    string   `json:"path"`
	SHA256  string   `json:"sha256"`
	Release string   `json:"release"`
	Backend string   `json:"backend"`
	Hello   []string `json:"hello"` // capabilities: name or name=value
	Problem string   `json:"problem,omitempty"`
}

// Device is one entry of the native binary's own list.
type Device struct {
	Name  string `json:"name"` // ROCm0, CUDA0, Vulkan0, …
	Free  uint64 `json:"free_bytes"`
	Total uint64 `json:"total_bytes"`
}

// Memory is measured, without the page cache.
type Memory struct {
	Total uint64 `json:"total_bytes"`
	Free  uint64 `json:"free_bytes"`
}

// Model is a file of weights on the host; the agent hashed what is there.
type Model struct {
	Path   string `json:"path"`
	Digest string `json:"digest"` // sha256:<hex>
	Bytes  uint64 `json:"bytes"`
}
