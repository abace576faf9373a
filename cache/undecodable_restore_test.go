// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestS2_S9_ARestoreOfUndecodableObjects: a restore of the API server corrects an object that
// cannot be decoded, deletes it, or brings it back, whatever was known at higher versions.
func TestS2_S9_ARestoreOfUndecodableObjects(t *testing.T) {
	const bad, good, absent = "large", 1, 0
	for name, of := range map[string]struct{ backup, later, then any }{
		"corrected":                       {good, bad, bad},
		"deleted":                         {absent, bad, bad},
		"brought back":                    {bad, good, good},
		"brought back after its end":      {bad, absent, absent},
		"corrected before, too":           {good, bad, good},
		"deleted before, too":             {absent, bad, absent},
		"deleted before, then brought up": {good, bad, absent},
	} {
		t.Run(name, func(t *testing.T) {
			widgetsIn(t, func(t *testing.T, api *sim.Server, c *cache.Cache) {
				put := func(size any) {
					switch {
					case size != absent:
						api.Put(widgets, owned("a", size, "red", "owner"))
					case api.Object(widgets, "default", "a") != nil:
						api.Remove(widgets, "default", "a")
					}
				}
				h := cache.For[*Widget](c)
				reads := readsOf(c, h, sizes(h))
				defer testkit.Start(t, c.Run)()
				put(of.backup)
				synced(t, h)
				time.Sleep(time.Minute)
				backup := api.Backup()
				for n := range 20 {
					api.Put(widgets, widget("busy", n+2))
				}
				for _, size := range []any{of.later, of.then} { // nothing reads in between
					put(size)
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				backup.Restore()
				time.Sleep(20 * time.Second)
				testkit.Equal(t, h.Stale(), nil)
				_, err := h.Get(t.Context(), testkit.Key("a"))
				testkit.Equal(t, slices.Equal(leftOut(err), []string{"a"}), of.backup == bad, fmt.Sprintf("Get returns %v", err))
				testkit.Equal(t, apierrors.IsNotFound(err), of.backup == absent, fmt.Sprintf("Get returns %v", err))
				for what, read := range reads {
					list, err := read(t, cache.ListOptions{})
					testkit.Equal(t, err != nil, of.backup == bad, fmt.Sprintf("%s returns %v", what, err))
					testkit.Equal(t, slices.Equal(leftOut(err), []string{"a"}), of.backup == bad, fmt.Sprintf("%s returns %v", what, err))
					testkit.Equal(t, strings.Join(namesOf(list), " "), map[bool]string{true: "a"}[of.backup == good], fmt.Sprintf("%s has", what))
				}
				api.Put(widgets, owned("a", 7, "red", "owner"))
				time.Sleep(time.Second)
				testkit.Equal(t, fmt.Sprint(testkit.Must(h.Get(t.Context(), testkit.Key("a"))).Size), "7")
			})
		})
	}
}
