// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// outlet is where a stream delivers its events, and how far it is.
type outlet struct {
	events  chan watch.Event
	stopped chan struct{}
	prepare func(object.Object) object.Object
	// options is for the next watch. It asks for the initial list until that has arrived.
	options metav1.ListOptions
}

// initial reports whether the initial list is incomplete.
func (o *outlet) initial() bool { return o.options.SendInitialEvents != nil }

// give delivers an event, with its object as it is to be stored. It returns false if the stream was
// stopped.
func (o *outlet) give(ctx context.Context, e watch.Event) bool {
	switch obj := e.Object.(type) {
	case known:
		e.Object = obj.Object
	case object.Object:
		if e.Type != watch.Bookmark {
			e.Object = o.prepare(obj)
		}
	}
	select {
	case o.events <- e:
		return true
	case <-o.stopped:
	case <-ctx.Done():
	}
	return false
}

func statusOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		s := status.Status()
		return &s
	}
	return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
}
