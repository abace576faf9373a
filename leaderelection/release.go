// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// releaseLimit is for how long a release is tried: less than what a manager leaves a process that stops.
const releaseLimit = 2 * time.Second

// release gives the Lease up, if it is still ours (L4), so that a rival need not wait for it to expire. A Lease that cannot be
// released expires. One that is not ours any more was lost before.
func (c *candidate) release(ctx context.Context, h *holding) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	stamped := false
	_, err := c.overwrite(ctx, h, func(l *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
		l = c.givenUp(h, l, at)
		_, stamped = l.Annotations[WrittenAnnotation]
		return l
	})
	if stamped && notStored(err) { // what it says of the writes (L9) is not worth to have rivals wait until it expires
		_, err = c.overwrite(ctx, h, givenUp)
	}
	switch {
	case errors.Is(err, errTaken):
		if h.term != nil && c.o.Hooks.Lost != nil { // it began, and did not end as it should
			c.o.Hooks.Lost(c.o.Lease)
		}
		return
	case err != nil:
		err = fmt.Errorf("release the Lease %s: %w", c, err)
	}
	if c.o.Hooks.Released != nil {
		c.o.Hooks.Released(c.o.Lease, err)
	}
}

// notStored says whether the API server did not want what was written: too many annotations, say, or an admission plugin that
// does not know ours.
func notStored(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err)
}
