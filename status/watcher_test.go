// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// Await may take the states more slowly than they come.
func TestWatcher_KeepsADeletionAndTheNewestObject(t *testing.T) {
	pod := func(name, version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version}}
	}
	w := &watcher{key: types.NamespacedName{Namespace: "default", Name: "web"}, newest: make(chan sighting, 1)}
	w.OnAdd(pod("web", "1"), false)
	w.OnDelete(pod("web", "2"))
	w.OnAdd(pod("web", "3"), false)
	w.OnUpdate(nil, pod("web", "4"))
	w.OnAdd(pod("other", "5"), false)
	if now := <-w.newest; !now.deleted || now.obj.GetResourceVersion() != "4" {
		t.Errorf("got version %s, deleted %t; want the newest, and that it was deleted before", now.obj.GetResourceVersion(), now.deleted)
	}
	w.OnUpdate(nil, pod("web", "6"))
	testkit.Equal(t, (<-w.newest).deleted, false, "one deletion was reported twice")
}
