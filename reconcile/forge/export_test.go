package forge

// Remembered is how much Seen holds.
func (s *Seen) Remembered() int { return max(len(s.at), len(s.order)) }
