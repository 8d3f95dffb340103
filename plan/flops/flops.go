// Package flops is the arithmetic of work: FLOPs of a training run from its architecture, and the rated peaks of
// accelerators by card and math mode. One convention throughout: a multiply-add is 2 FLOPs, training is three
// passes, attention is counted in full, an embedding look-up is free, the output head counts. Pure.
package flops

// Convention is stored beside every number of FLOPs, so that two conventions are never mixed.
const Convention = "headway-1: mac=2, train=3 passes, attention full, embedding 0, head counted"

// Work is what one job computes, as the plan states it. All FLOPs are for the whole run.
type Work struct {
	Total   float64 // FLOPs of the whole run; 0 = not stated
	PerStep float64 // FLOPs of one step; 0 = not stated
	Steps   int64   // steps of the whole run; 0 = not stated
}
