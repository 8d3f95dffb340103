package ringsim

// bound is the largest physical result that a stage server reports, bytes, by ring.md §4: written down a second time,
// from the text and not from the lane's code, so that a test can hold the two against one another. tail: the last stage
// sends no tensors. rows is n_batch, micro n_ubatch, sequences n_seq_max, cut and hidden the model's. Nothing here
// overflows: what is too large for a wire is refused by the server before.
func bound(tail bool, rows, micro, sequences, cut, hidden uint64) uint64 {
	const (
		text       = 2 + 4096
		owner      = 56 + 5*text
		capsule    = 8 + 10*4
		descriptor = 8 + 32 + 32 + 8 + 8 + 4 + text + 8
		token      = 4 + 4 + 2*text
		output     = 24 + token
	)
	row := uint64(16+4+1+owner) + 4*sequences
	ending := 12 + rows*capsule + rows*(row+output)
	if tail {
		cut = 0
	}
	payload := cut * micro * hidden * 4
	forwarding := 12 + rows*(capsule+cut*descriptor+payload) + rows*row
	return max(forwarding, ending)
}
