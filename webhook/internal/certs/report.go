// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"maps"
	"slices"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/logging"
)

// reporter logs and records each problem once.
type reporter struct {
	recorder *events.Recorder // nil: none
	texts    map[string]string
	news     map[string]string // the problems of this look
}

// problem reports a problem of this look. what identifies it. object is nil if there is none.
func (r *reporter) problem(ctx context.Context, what string, object client.Object, reason, text string) {
	r.news[what] = text
	if r.texts[what] == text {
		return
	}
	r.texts[what] = text
	logging.Of(ctx).Warn("webhook certificates have a problem", "problem", text)
	r.event(ctx, object, events.Warning, reason, text)
}

func (r *reporter) event(ctx context.Context, object client.Object, t events.Type, reason, text string) {
	if r.recorder != nil && object != nil {
		r.recorder.Eventf(ctx, object, t, reason, "", text)
	}
}

func (r *reporter) begin() { r.news = map[string]string{} }

// end logs which problems are solved, and returns the others.
func (r *reporter) end(ctx context.Context) []string {
	for _, what := range slices.Sorted(maps.Keys(r.texts)) {
		if _, ok := r.news[what]; !ok {
			logging.Of(ctx).Info("a problem of webhook certificates is solved", "problem", r.texts[what])
			delete(r.texts, what)
		}
	}
	var all []string
	for _, what := range slices.Sorted(maps.Keys(r.texts)) {
		all = append(all, r.texts[what])
	}
	return all
}
