// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestS9_TheFirstListIsCurrent: an API server without streamed lists may answer a list of version 0
// with any old state, which lacks what a crashed process has written.
func TestS9_TheFirstListIsCurrent(t *testing.T) {
	kind := widgets.Kind
	for name, list := range map[string]func(*cache.Cache) interface{ Stale() error }{
		"typed": func(c *cache.Cache) interface{ Stale() error } { return cache.For[*Widget](c) },
		"metadata": func(c *cache.Cache) interface{ Stale() error } {
			return cache.ForScope[*metav1.PartialObjectMetadata](c, scopeOf(kind))
		},
		"unstructured": func(c *cache.Cache) interface{ Stale() error } {
			return cache.ForScope[*unstructured.Unstructured](c, scopeOf(kind))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(widgets)
				var versions []string
				api.Intercept(noStreaming(func(r *sim.Request) (*http.Response, error) {
					if r.Verb == "list" {
						versions = append(versions, r.Query.Get("resourceVersion"))
					}
					return nil, nil
				}))
				c, _ := widgetCache(t, api)
				h := list(c)
				defer testkit.Start(t, c.Run)()
				synctest.Wait()
				if err := h.Stale(); err != nil || len(versions) == 0 || versions[0] != "" {
					t.Errorf("lists of the versions %q; %v", versions, err)
				}
			})
		})
	}
}

func scopeOf(kind string) cache.Scope {
	s := cache.Scope{}
	s.Kind.Group, s.Kind.Version, s.Kind.Kind = widgets.Group, widgets.Version, kind
	return s
}
