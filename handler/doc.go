// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package handler maps events to the keys that a controller reconciles. Predicates can drop an
// event before the handler sees it.
//
//	source.Kind(websites, handler.Self(), handler.GenerationChanged)
//	source.Kind(deployments, handler.Owner(websites))
//	source.Kind(secrets, handler.Map(func(ctx context.Context, s *corev1.Secret) ([]types.NamespacedName, error) { … }))
//
// Handlers are [Self], [Owner], [AnyOwner], and [Map], [Funcs] and [Func] with your function.
// Predicates are [GenerationChanged] and the constants next to it, and [Where] with your function.
// [And], [Or] and [Not] combine them. [InClass] and [After] choose how urgent an event is, and when
// its keys are due.
//
// # Concurrency
//
// A source calls handlers and predicates from several goroutines at once: for new events, retries
// and resyncs. The events of one object come in order, one after another. The objects are shared:
// do not change them.
//
// Stability: stable.
package handler
