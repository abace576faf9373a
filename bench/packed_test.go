// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestPackedContestants_ReconcileWhatTheServerSends runs each controller over a few objects. A run
// fails if it reconciles another number of objects, updates or dropped statuses than expected.
func TestPackedContestants_ReconcileWhatTheServerSends(t *testing.T) {
	for _, kind := range []string{"pods", "typed", "unstructured", "lean pods", "lean configmaps"} {
		const objects, events = 200, 100
		for _, c := range packedContestants {
			for _, j := range []job{work, index, lean} {
				// TestScrape_KeepsDashboards reads the global registry of controller-runtime.
				if c.jobs[j] == nil || (j == lean) != strings.HasPrefix(kind, "lean ") || j == index && kind != "pods" || strings.HasPrefix(c.name, runtimeName) && j == work {
					continue
				}
				if kind != "pods" && indexesPods(c.name) {
					continue
				}
				t.Run(kind+"/"+c.name+"/"+string(j), func(t *testing.T) {
					t.Parallel() // mostly, they wait
					server := httptest.NewServer(newPackedServer(events, servedKind{packedKind: packedKindOf(kind), objects: objects}))
					t.Cleanup(server.Close)
					o := packedOrders{Job: j, Contestant: c.name, Kind: kind, Objects: objects, Events: events, Server: server.URL}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					testkit.NoError(t, testkit.Err(o.measure(ctx)))
				})
			}
		}
	}
}

// TestPackedServer_PagesHoldEveryObject reads a list in pages, which contestants may ask for.
func TestPackedServer_PagesHoldEveryObject(t *testing.T) {
	server := httptest.NewServer(newPackedServer(0, servedKind{packedKind: packedKindOf("pods"), objects: 250}))
	t.Cleanup(server.Close)
	protobuf := rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}
	c, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: protobuf})
	testkit.NoError(t, err)
	names, pages := map[string]bool{}, 0
	for o := (metav1.ListOptions{Limit: 100}); pages == 0 || o.Continue != ""; pages++ {
		list, err := c.CoreV1().Pods("").List(t.Context(), o)
		testkit.NoError(t, err)
		for _, p := range list.Items {
			names[p.Name] = true
		}
		o.Continue = list.Continue
	}
	testkit.Equal(t, len(names), 250)
	testkit.Equal(t, pages, 3)
}
