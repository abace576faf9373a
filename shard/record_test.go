// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

// TestP1_AnotherWriterIsNoticed: a copy of a valid assignment that a person has put back.
func TestP1_AnotherWriterIsNoticed(t *testing.T) {
	fields := func(manager, text string) metav1.ManagedFieldsEntry {
		f := &metav1.FieldsV1{}
		f.SetRawString(text)
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: f}
	}
	const ours = `{"f:metadata":{"f:annotations":{".":{},"f:setpoint.dev/slots":{}}}}`
	holder := Holder
	for want, entries := range map[string][]metav1.ManagedFieldsEntry{
		slots.Manager: {fields("kubectl", `{"f:metadata":{"f:annotations":{"f:other":{}}}}`), fields(slots.Manager, ours)},
		"kubectl":     {fields(slots.Manager, ours), fields("kubectl", ours)},
		"someone":     {fields("someone", "damaged"), fields(slots.Manager, ours)},
		"":            nil,
	} {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", ManagedFields: entries}}
		l.Spec.HolderIdentity = &holder
		if r, err := recordOf(l, 7); err != nil || r.Manager != want || r.Version != 7 {
			t.Errorf("want %q, got %+v, %v", want, r, err)
		}
	}
}
