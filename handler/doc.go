// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package handler says what an event means: which keys it makes due, and which events cannot matter.
//
// A [Handler] turns an [Event] into keys; a [Filter] drops events before that. Both are called off the queue's lock, and by
// several goroutines at once: one for what is new, one for events that failed and are tried again, one for resyncs. Events of one
// object come one after another. The objects in an event are shared: they must not be changed.
//
//	source.Kind(websites, handler.Self(), handler.GenerationChanged)
//	source.Kind(deployments, handler.Owner(websites))
//	source.Kind(secrets, handler.Map(func(ctx context.Context, s *corev1.Secret) ([]types.NamespacedName, error) { … }))
//
// Handlers: Self, Owner and AnyOwner, Map (one function for the old and the new state), Funcs (one for each operation), Func (the
// whole event). One whose keys are those of the objects themselves says so (Identity). Filters: the constants of Change, Where, and And, Or, Not and Named to combine them.
package handler
