// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// reads are a Reconcile's reads of caches.
type reads struct {
	n       atomic.Int32
	missing atomic.Pointer[string] // the last object that a cache did not have
	traced  *keptReads             // or nil
}

// Read implements contextkey.Reader.
func (r *reads) Read(kind schema.GroupVersionKind, name types.NamespacedName, stored any) {
	r.n.Add(1)
	if stored == nil && name.Name != "" {
		r.missing.Store(new(kind.Kind + " " + textOf(name)))
	}
	if r.traced != nil {
		r.traced.add(kind, name, stored)
	}
}

func textOf(name types.NamespacedName) string { return strings.TrimPrefix(name.String(), "/") }
