package compile

import "slices"

// table is a list of values sorted by key. The list it hands out is never changed afterwards: the next change works on
// a copy of it. So a Snapshot costs nothing where nothing changed, and one copy of pointers where something did.
type table[K, V any] struct {
	key     func(V) K
	compare func(a, b K) int
	rows    []V
	shared  bool // rows was handed out
}

// list hands out the rows.
func (t *table[K, V]) list() []V {
	t.shared = true
	return t.rows
}

// find is where the key is, or would be.
func (t *table[K, V]) find(key K) (index int, found bool) {
	return slices.BinarySearchFunc(t.rows, key, func(row V, key K) int { return t.compare(t.key(row), key) })
}

// get is the value of a key.
func (t *table[K, V]) get(key K) (value V, found bool) {
	i, found := t.find(key)
	if found {
		value = t.rows[i]
	}
	return value, found
}

// set adds a value or replaces the one with its key.
func (t *table[K, V]) set(value V) {
	t.own()
	i, found := t.find(t.key(value))
	if found {
		t.rows[i] = value
		return
	}
	t.rows = slices.Insert(t.rows, i, value)
}

// remove takes the value of a key out.
func (t *table[K, V]) remove(key K) {
	i, found := t.find(key)
	if !found {
		return
	}
	t.own()
	t.rows = slices.Delete(t.rows, i, i+1)
}

// own makes sure that nobody else sees the rows.
func (t *table[K, V]) own() {
	if t.shared {
		t.rows, t.shared = slices.Clone(t.rows), false
	}
}
