package reconcile

// keep puts a value into a map that is made with its first one: of the works that run, most shelves hold one claim and
// nothing else, and five empty maps for each of ten thousand are megabytes.
func keep[V any](m *map[int64]V, n int64, v V) {
	if *m == nil {
		*m = map[int64]V{}
	}
	(*m)[n] = v
}
