// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	theircontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
)

// based returns ctx with the values of BaseContext, too.
func (b *Bridge) based(ctx context.Context) context.Context {
	if b.options.BaseContext == nil {
		return ctx
	}
	return &valued{ctx, b.options.BaseContext()}
}

// valued is a context with the values of another one.
type valued struct {
	context.Context

	values interface{ Value(key any) any }
}

func (v *valued) Value(key any) any {
	if value := v.Context.Value(key); value != nil {
		return value
	}
	return v.values.Value(key)
}

// reconcileContext is the context of a Reconcile of level b. It has what a Reconcile finds in the
// context of controller-runtime. The logger is made when it is asked for.
type reconcileContext struct {
	context.Context

	by      *built
	request reconcile.Request

	once   sync.Once
	logger logr.Logger
}

func (c *reconcileContext) Value(key any) any {
	switch key {
	case builtKey{}:
		return c.by
	case c.by.idKey:
		return types.UID(c.id())
	case c.by.logKey:
		c.once.Do(func() { c.logger = c.by.options.LogConstructor(&c.request).WithValues("reconcileID", c.id()) })
		return c.logger
	}
	return c.Context.Value(key)
}

func (c *reconcileContext) id() string {
	info, _ := controller.InfoFromContext(c.Context)
	return info.ReconcileID
}

// reconcileIDKey returns the key that ReconcileIDFromContext asks for, which is not exported.
func reconcileIDKey() (key any) {
	theircontroller.ReconcileIDFromContext(asked(func(k any) { key = k }))
	return key
}

// logKey is reconcileIDKey for the logger.
func logKey() (key any) {
	_, _ = logr.FromContext(asked(func(k any) { key = k }))
	return key
}

// asked is a context that passes on which value it is asked for.
type asked func(key any)

func (asked) Deadline() (deadline time.Time, ok bool) { return deadline, false }
func (asked) Done() <-chan struct{}                   { return nil }
func (asked) Err() error                              { return nil }

func (a asked) Value(key any) any {
	a(key)
	return nil
}
