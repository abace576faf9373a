// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func pod(data string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "default", "name": "a"}, "spec": map[string]any{"nodeName": data},
	}}
}

func TestEncodingsAreBounded(t *testing.T) {
	s := New()
	table := s.Serve(kinds.Define(kinds.Pods), nil)
	live := s.Record(table, watch.Added, nil, pod("0"))
	for i := range 1000 {
		live = s.Record(table, watch.Modified, live, pod(strconv.Itoa(i)))
		for j := range table.events {
			if j >= len(table.events)-sharedEvents {
				testkit.NoError(t, testkit.Err(table.Encode(table.events[j].After, wire.Form{}, true)))
			}
		}
	}
	if n := len(table.encodings); n > sharedEvents+len(table.Objects) {
		t.Errorf("%d encodings", n)
	}
}

func TestTakeChanges_ReturnsEachWriteOnce(t *testing.T) {
	s := New()
	table := s.Serve(kinds.Define(kinds.Pods), nil)
	live := s.Record(table, watch.Added, nil, pod("0"))
	s.Remove(table, live)
	changes := s.TakeChanges()
	if len(changes) != 2 || changes[0].Kind != watch.Added || changes[1].Kind != watch.Deleted || changes[1].Before != live {
		t.Errorf("got %v", changes)
	}
	testkit.Len(t, s.TakeChanges(), 0)
}
