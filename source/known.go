// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/handler"
)

// Known calls do with the key and the UID of each object in the source's cache, if the handler is a
// handler.Identity. It asks no predicate. A controller calls it, to compare its keys with other
// replicas.
func (f *feed[K]) Known(ctx context.Context, do func(K, types.UID)) error {
	identity, ok := f.handler.(handler.Identity[K])
	if !ok || f.stored == nil {
		return nil
	}
	var wrong error
	err := f.stored(ctx, func(o cache.Object) {
		if wrong == nil {
			wrong = f.identify(identity, o, do)
		}
	})
	return errors.Join(err, wrong)
}

func (f *feed[K]) identify(identity handler.Identity[K], o cache.Object, do func(K, types.UID)) (err error) {
	exited := true
	defer f.caught(&exited, &err)
	if e, readable := decoded(identity, handler.Event{Op: handler.Create, New: o}); readable {
		if key, ok := identity.Identity(e.New); ok {
			do(key, o.GetUID())
		}
	}
	exited = false
	return nil
}
