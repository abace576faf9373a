// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// The API server answers the patch that removes the last finalizer with the version of the deletion
// mark. That patch has an effect. Another one with a known version has none.
func TestAnswered(t *testing.T) {
	r := &run{newest: map[string]*author{}, generated: map[string]string{}, versions: map[string]*author{}}
	now := metav1.Now()
	marked := metav1.ObjectMeta{Name: "a", ResourceVersion: "40", DeletionTimestamp: &now, Finalizers: []string{"example.com/a"}}
	gone := marked
	gone.Finalizers = nil
	for i, c := range []struct {
		verb      string
		meta      metav1.ObjectMeta
		effective bool
	}{{"delete", marked, true}, {"patch", marked, false}, {"patch", gone, true}} {
		w := &write{verb: c.verb}
		r.answered(w, "operator 1", c.meta)
		testkit.Equal(t, w.effective, c.effective, i, fmt.Sprintf("%s has an effect", c.verb))
	}
}

// A conflict with an earlier write of the same process is a mistake, but not if two keys of
// controllers have made them.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			first, second string
			mistake       bool
		}{{"", "", true}, {"maps a", "maps a", true}, {"maps a", "maps b", false}, {"maps a", "pods a", false}} {
			r := &run{newest: map[string]*author{}, generated: map[string]string{}, versions: map[string]*author{}, record: newRecord()}
			r.answered(&write{name: "update maps", by: c.first}, "operator 1", metav1.ObjectMeta{Name: "a", ResourceVersion: "1"})
			time.Sleep(10 * time.Second)
			r.refused(&write{name: "update maps", by: c.second}, "operator 1", "", &metav1.Status{
				Reason: metav1.StatusReasonConflict, Details: &metav1.StatusDetails{Name: "a"},
			})
			testkit.Equal(t, len(r.record.unseen) > 0, c.mistake, fmt.Sprintf("%q after %q", c.second, c.first), "a mistake")
			clear(r.record.unseen)
			r.refused(&write{name: "create maps", by: c.second}, "operator 1", "", &metav1.Status{
				Reason: metav1.StatusReasonAlreadyExists, Details: &metav1.StatusDetails{Name: "a"},
			})
			testkit.Equal(t, len(r.record.unseen) > 0, c.mistake && c.second != "", fmt.Sprintf("a create by %q after %q", c.second, c.first), "a mistake")
		}
	})
}
