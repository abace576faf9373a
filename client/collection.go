// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// deletedAtOnce limits the response to a deletecollection, which has the objects' metadata, to what
// the ledger reads.
const deletedAtOnce = 200

// DeleteAll deletes the selected objects with deletecollection. Like Delete, it returns once the
// API server has accepted the requests, and in a Reconcile the key waits until the caches show each
// deletion. It takes [DryRun], [Propagation] and [GracePeriod]. If a page fails, the objects of
// earlier pages are deleted.
//
// o must have a Namespace for a namespaced kind, and Labels or Fields for a cluster-scoped one,
// such as labels.Everything() for all objects. A page has o.PageSize objects, by default 200.
// Objects that are created meanwhile may survive.
func (h *Handle[T]) DeleteAll(ctx context.Context, o ListOptions, options ...Option) error {
	c, err := h.target.call(deletingAll, options)
	if err != nil {
		return err
	}
	if o.Namespace == "" && o.Labels == nil && o.Fields == nil {
		return fmt.Errorf("%s: nothing is selected; give a Namespace, Labels or Fields, or labels.Everything() for all objects of a cluster-scoped kind",
			h.target.doing(deletingAll, types.NamespacedName{}))
	}
	o.PageSize = cmp.Or(o.PageSize, deletedAtOnce)
	t := h.target
	t.form = inMetadata // for the responses
	return t.eachPage(ctx, deletingAll, o, &c.delete, func(runtime.Object) error { return nil })
}
