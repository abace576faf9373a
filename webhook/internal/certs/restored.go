// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/logging"
)

// rewritten reports that another client changes the Secret again and again.
func (d *driver) rewritten(ctx context.Context, s *corev1.Secret) {
	by := taker(s, d.o.FieldOwner, "data")
	who, tool := fieldManager(by)
	remedy := fmt.Sprintf("find out why %s writes it, and exclude it there", tool)
	logging.Of(ctx).Warn("restored the Secret of the webhook certificates that another client changed",
		"secret", d.o.Secret.String(), "manager", cmp.Or(by, "unknown"), "resets", d.secret.count, "remedy", remedy)
	d.report.event(ctx, s, events.Warning, "SecretReset", fmt.Sprintf("%s changes the Secret again and again; %s", who, remedy))
}

// fieldManager names the field manager, for two places in a sentence.
func fieldManager(by string) (who, tool string) {
	if by == "" {
		return "an unknown field manager", "another tool"
	}
	return fmt.Sprintf("the field manager %q", by), by
}

// restored reports that a bundle was reset, once for each reset.
func (d *driver) restored(ctx context.Context, t observed, r *resets) {
	by := taker(t.object, d.o.FieldOwner, "caBundle")
	who, tool := fieldManager(by)
	args := []any{"object", t.String(), "manager", cmp.Or(by, "unknown")}
	text := who + " reset the caBundle; it is restored"
	if r.count >= quickResets {
		remedy := fmt.Sprintf("remove caBundle from the manifests that %s applies", tool)
		args = append(args, "resets", r.count, "remedy", remedy)
		text = fmt.Sprintf("%s resets the caBundle again and again; %s", who, remedy)
	}
	logging.Of(ctx).Warn("restored a caBundle that another client reset", args...)
	d.report.event(ctx, t.object, events.Warning, "BundleReset", text)
}
