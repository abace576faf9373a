// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
)

// births counts what the replicas create for each board, and records what is wrong meanwhile.
type births struct {
	waits atomic.Int64
	mu    sync.Mutex // guards the following
	count map[string]int
	undos int // how often a restore may have undone a creation
	wrong []string
}

// add counts an object, unless its creation failed.
func (b *births) add(what string, board types.UID, err error) {
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	name := fmt.Sprintf("%s of board %s", what, board)
	if b.count[name]++; b.count[name] > 1+b.undos {
		b.wrong = append(b.wrong, fmt.Sprintf("created the %s %d times", name, b.count[name]))
	}
}

// restored allows one more creation of each object: a restore undoes those since the backup.
func (b *births) restored() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.undos++
}

// note records something wrong.
func (b *births) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
}

// waited counts keys that waited for an informer.
func (b *births) waited(hook.Awaited) { b.waits.Add(1) }

// double records that a board had two Secrets at its end.
func (b *births) double(board types.UID) {
	b.note("the board %s had two secrets at its end", board)
}

// take returns what was wrong since the last call.
func (b *births) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	wrong := b.wrong
	b.wrong, b.count, b.undos = nil, map[string]int{}, 0
	return wrong
}
