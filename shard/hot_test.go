// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/shard"
)

var forbidden = apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "", nil)

// TestGroup_NoHotLoop: whatever requests fail, a member makes at most four in a second.
func TestGroup_NoHotLoop(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, f *fleet){
		"deletes are forbidden, and a Lease stays": func(t *testing.T, f *fleet) {
			f.api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"delete"}}, Refuse: forbidden})
			f.all[0].cut.Store(true)
		},
		"updates of the group's Lease are forbidden": func(t *testing.T, f *fleet) {
			f.api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"update"}, Name: "web"}, Refuse: forbidden})
			f.all[0].cut.Store(true)
		},
		"creates and gets are forbidden, and the group's Lease is deleted": func(t *testing.T, f *fleet) {
			f.api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"create"}}, Refuse: forbidden})
			f.api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"get"}}, Refuse: forbidden})
			f.remove("web")
		},
		"lists are forbidden, and the group's Lease is deleted": func(t *testing.T, f *fleet) {
			f.api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"list"}}, Refuse: forbidden})
			f.remove("web")
		},
		"the events come late, and the group's Lease is deleted": func(t *testing.T, f *fleet) {
			f.api.Lag(time.Hour)
			f.remove("web")
			f.all[0].stop()
		},
		"everything is refused": func(t *testing.T, f *fleet) {
			f.api.Add(fault.Rule{Refuse: apierrors.NewInternalError(http.ErrAbortHandler)})
		},
		"the server has too many requests": func(t *testing.T, f *fleet) {
			f.api.Add(fault.Rule{Refuse: apierrors.NewTooManyRequests("slow down", 0)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.end()
				for _, name := range []string{"a", "b", "c", "d"} {
					f.start(name, shard.Options{})
				}
				f.passUntil("four members", time.Minute, even(4, 256))
				f.pass(30 * time.Second)
				spoil(t, f)
				for range 6 {
					before := f.api.Count("", sim.Leases)
					f.pass(15 * time.Second)
					testkit.AtMost(t, f.api.Count("", sim.Leases)-before, 4*15*4)
				}
			})
		})
	}
}

func (f *fleet) remove(name string) {
	f.t.Helper()
	testkit.NoError(f.t, f.client().CoordinationV1().Leases("default").Delete(f.t.Context(), name, metav1.DeleteOptions{}))
}
