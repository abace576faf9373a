// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"reflect"
)

// origins returns for each element of after the index in before from which it comes, or -1 for a
// new one. No index appears twice.
func origins(before, after []any) []int {
	m := &matching{before: before, after: after, origin: make([]int, len(after)), used: make([]bool, len(before))}
	for j := range m.origin {
		m.origin[j] = -1
	}
	n := min(len(before), len(after))
	for k := 0; k < n && reflect.DeepEqual(before[k], after[k]); k++ {
		m.pair(k, k)
	}
	for k := 1; k <= n; k++ {
		i, j := len(before)-k, len(after)-k
		if m.used[i] || m.origin[j] >= 0 || !reflect.DeepEqual(before[i], after[j]) {
			break
		}
		m.pair(i, j)
	}
	m.by(func(v any) string {
		text, _ := json.Marshal(v) // decoded from JSON
		return string(text)
	})
	m.by(identity)
	m.inOrder()
	return m.origin
}

type matching struct {
	before, after []any
	origin        []int  // by index of after
	used          []bool // by index of before
}

func (m *matching) pair(i, j int) { m.origin[j], m.used[i] = i, true }

// by pairs elements with the same key. Elements with the empty key stay unpaired.
func (m *matching) by(key func(any) string) {
	free := map[string][]int{}
	for i, used := range m.used {
		if k := ""; !used {
			k = key(m.before[i])
			free[k] = append(free[k], i)
		}
	}
	for j, i := range m.origin {
		if i >= 0 {
			continue
		}
		k := key(m.after[j])
		if indexes := free[k]; k != "" && len(indexes) > 0 {
			m.pair(indexes[0], j)
			free[k] = indexes[1:]
		}
	}
}

// inOrder pairs what is left, in order, if it looks like a change of the same element.
func (m *matching) inOrder() {
	next := 0
	for j, paired := range m.origin {
		if paired >= 0 {
			continue
		}
		for i := next; i < min(len(m.used), next+maxDistance); i++ {
			if !m.used[i] && m.similar(m.before[i], m.after[j]) {
				m.pair(i, j)
				next = i + 1
				break
			}
		}
	}
}

// maxDistance limits how far inOrder searches, and so its time.
const maxDistance = 100

// similar reports whether a may be a change of b.
func (m *matching) similar(b, a any) bool {
	return identity(b) == "" && identity(a) == "" && (len(m.before) == len(m.after) || alike(b, a))
}

// identity returns what identifies an element in most lists of Kubernetes, or the empty string.
func identity(v any) string {
	object, _ := v.(map[string]any)
	for _, k := range [...]string{"name", "key", "type", "id", "mountPath", "containerPort", "port", "ip"} {
		if id, ok := object[k]; ok {
			text, _ := json.Marshal(id) // decoded from JSON
			return k + "=" + string(text)
		}
	}
	return ""
}

func alike(a, b any) bool {
	x, _ := a.(map[string]any)
	y, _ := b.(map[string]any)
	for k, v := range x {
		if w, ok := y[k]; ok && reflect.DeepEqual(v, w) {
			return true
		}
	}
	return false
}
