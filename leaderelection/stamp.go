// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/stamp"
)

// WrittenAnnotation is the annotation of a released Lease with what its term wrote, as JSON of at
// most 16 KiB. The next elector of this module removes it.
//
// All readers of the Lease can read it. It has the resources, their newest versions, the UIDs of
// deleted objects, and the time. It has no namespaces, names or labels.
const WrittenAnnotation = "setpoint.dev/written"

// maxStamp is in bytes.
const maxStamp = 16 << 10

// stamper reads and writes the annotation.
type stamper struct{ stamp.Codec }

func newStamper(identity, host string) stamper {
	return stamper{stamp.Codec{Identity: identity, Host: host, Limit: maxStamp}}
}

func unstamped(l *coordinationv1.Lease) *coordinationv1.Lease {
	delete(l.Annotations, WrittenAnnotation)
	return l
}

func (m stamper) stamped(l *coordinationv1.Lease, h *fence.Handover, at time.Time) *coordinationv1.Lease {
	l = unstamped(l)
	if text := m.Encode(h, at); text != "" {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, WrittenAnnotation, text)
	}
	return l
}

// inheritance returns nil if the annotation is of an earlier release. The renewTime of the Lease is
// later if it had another holder since. client-go's elector, for example, keeps the annotation.
func (m stamper) inheritance(l *coordinationv1.Lease) (*fence.Handover, error) {
	text := l.Annotations[WrittenAnnotation]
	if text == "" || !lease.Released(l) || l.Spec.RenewTime == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	h, err := m.Decode(text)
	if !h.Released.IsZero() && !h.Released.Equal(l.Spec.RenewTime.Time) {
		return nil, nil //nolint:nilnil // there is none
	}
	return h, err
}
