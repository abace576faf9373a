// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// How much is kept for package why.
const (
	mostNoted = 10_000 // keys
	mostNotes = 500    // bytes of a key
)

// keyNotes has the notes of the last Reconciles of keys, for package why. Most keys have none.
type keyNotes[K comparable] struct {
	n atomic.Int64

	mu   sync.Mutex // guards keys
	keys map[K]string
}

// keep replaces the notes of a key. If there are too many keys, it forgets any other.
func (n *keyNotes[K]) keep(key K, texts []string) {
	if len(texts) == 0 && n.n.Load() == 0 {
		return
	}
	text := strings.Join(texts, "; ")
	if len(text) > mostNotes {
		text = strings.ToValidUTF8(text[:mostNotes], "") + " …"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.keys, key)
	if text != "" {
		if n.keys == nil {
			n.keys = map[K]string{}
		}
		for other := range n.keys {
			if len(n.keys) < mostNoted {
				break
			}
			delete(n.keys, other)
		}
		n.keys[key] = fmt.Sprintf("noted at %s: %s", time.Now().Format(time.RFC3339), text)
	}
	n.n.Store(int64(len(n.keys)))
}

// of returns the notes of a key as evidence.
func (n *keyNotes[K]) of(key K) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if text, ok := n.keys[key]; ok {
		return []string{text}
	}
	return nil
}

// notes are the notes of a running Reconcile.
type notes struct {
	mu    sync.Mutex // guards texts
	texts []string
}

// Note implements contextkey.Noter.
func (n *notes) Note(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.texts = append(n.texts, text)
}

func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.texts
}
