// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package handler turns events into keys, and drops events that cannot matter.
//
//	source.Kind(websites, handler.Self(), handler.GenerationChanged)
//	source.Kind(deployments, handler.Owner(websites))
//	source.Kind(secrets, handler.Map(func(ctx context.Context, s *corev1.Secret) ([]types.NamespacedName, error) { … }))
//
// A [Handler] turns an [Event] into keys; a [Predicate] drops events before that. Several goroutines of
// a source call both at once: for new events, for events that failed, and for resyncs. Events of one
// object come one after another. The objects in an event are shared: do not change them.
package handler
