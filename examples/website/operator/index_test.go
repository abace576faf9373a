// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/handler"
)

func index(name string, entries map[string]string) handler.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: entries}
}

func TestUnlisted(t *testing.T) {
	both := map[string]string{"a": "http://a.shop.svc", "b": "http://b.shop.svc"}
	onlyB := map[string]string{"b": "http://b.shop.svc"}
	for name, c := range map[string]struct {
		event handler.Event
		want  []string
	}{
		"an entry added":           {handler.Event{Op: handler.Update, Old: index(IndexName, onlyB), New: index(IndexName, both)}, nil},
		"an entry removed":         {handler.Event{Op: handler.Update, Old: index(IndexName, both), New: index(IndexName, onlyB)}, []string{"a"}},
		"an entry changed":         {handler.Event{Op: handler.Update, Old: index(IndexName, both), New: index(IndexName, map[string]string{"a": "?", "b": both["b"]})}, []string{"a"}},
		"the index deleted":        {handler.Event{Op: handler.Delete, Old: index(IndexName, both)}, []string{"a", "b"}},
		"the index first seen":     {handler.Event{Op: handler.Create, New: index(IndexName, both)}, nil},
		"another ConfigMap":        {handler.Event{Op: handler.Delete, Old: index("hello-content", both)}, nil},
		"an index without entries": {handler.Event{Op: handler.Delete, Old: index(IndexName, nil)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := unlisted(t.Context(), c.event)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, k := range keys {
				if k.Namespace != "shop" {
					t.Errorf("due: %s, which is in the wrong namespace", k)
				}
				names = append(names, k.Name)
			}
			slices.Sort(names)
			if !slices.Equal(names, c.want) {
				t.Errorf("due: %v, want %v", names, c.want)
			}
		})
	}
}
