// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// pages answers lists of ConfigMaps with pages of one object, named a, b, c…; expired answers
// instead of a page.
func pages(api *sim.Server, names string, expired func(r *sim.Request, token string) (*http.Response, error)) {
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Verb != "list" {
			return nil, nil
		}
		token := r.Query.Get("continue")
		if resp, err := expired(r, token); resp != nil || err != nil {
			return resp, err
		}
		i := 0
		if token != "" {
			i = strings.Index(names, strings.TrimPrefix(token, "late-"))
		}
		next := ""
		if i+1 < len(names) {
			next = names[i+1 : i+2]
		}
		return r.Send(fmt.Sprintf(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":%q},"items":[{"metadata":{"namespace":"n","name":%q}}]}`, next, names[i:i+1]))
	})
}

func never(*sim.Request, string) (*http.Response, error) { return nil, nil }

func namesOf(all []*corev1.ConfigMap) string {
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
	}
	return strings.Join(names, "")
}

func TestListLivePages(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	ctx, maps := t.Context(), client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
	pages(api, "abcd", never)
	all, err := client.Collect(maps.ListLive(ctx, client.ListOptions{
		Namespace: "n", PageSize: 1, Labels: labels.SelectorFromSet(labels.Set{"a": "b"}), Fields: fields.OneTermNotEqualSelector("metadata.name", "z"),
	}))
	testkit.Equal(t, err, nil)
	testkit.Equal(t, namesOf(all), "abcd")
	var lists []*sim.Request
	for _, r := range api.Requests() {
		if r.Verb == "list" {
			lists = append(lists, r)
		}
	}
	if len(lists) != 4 {
		t.Fatalf("%d requests, want 4", len(lists))
	}
	for _, r := range lists {
		if r.Namespace != "n" || r.Query.Get("limit") != "1" || r.Query.Get("labelSelector") != "a=b" || r.Query.Get("fieldSelector") != "metadata.name!=z" || r.Query.Has("resourceVersion") {
			t.Errorf("%s %v", r, r.Query)
		}
	}

	// Who leaves the loop asks for no further page.
	for m, err := range maps.ListLive(ctx, client.ListOptions{}) {
		testkit.NoError(t, err)
		if m.Name == "b" {
			break
		}
	}
	testkit.Equal(t, api.Count("list", sim.ConfigMaps), 6, "requests")
	testkit.Equal(t, api.Requests()[len(api.Requests())-1].Query.Get("limit"), "500", "the size of pages by default")
}

// TestListLiveExpired: a list continues without gaps and repetitions when the version of its first
// page is gone.
func TestListLiveExpired(t *testing.T) {
	gone := func(r *sim.Request, next string) (*http.Response, error) {
		return r.FailWith(metav1.Status{Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old", ListMeta: metav1.ListMeta{Continue: next}})
	}
	for what, c := range map[string]struct {
		expired func(r *sim.Request, token string) (*http.Response, error)
		want    string
		fails   bool
	}{
		"once": {func(r *sim.Request, token string) (*http.Response, error) {
			if token == "c" {
				return gone(r, "late-c")
			}
			return nil, nil
		}, "abcd", false},
		"each time": {func(r *sim.Request, token string) (*http.Response, error) {
			if token != "" && !strings.HasPrefix(token, "late-") {
				return gone(r, "late-"+token)
			}
			return nil, nil
		}, "abcd", false},
		"without a way on": {func(r *sim.Request, token string) (*http.Response, error) {
			if token == "c" {
				return gone(r, "")
			}
			return nil, nil
		}, "ab", true},
		"for ever": {func(r *sim.Request, token string) (*http.Response, error) {
			if strings.HasSuffix(token, "c") {
				return gone(r, "late-c")
			}
			return nil, nil
		}, "ab", true},
	} {
		t.Run(what, func(t *testing.T) {
			api := sim.NewServer(sim.ConfigMaps)
			pages(api, "abcd", c.expired)
			all, err := client.Collect(client.For[*corev1.ConfigMap](newClient(t, api, client.Options{})).ListLive(t.Context(), client.ListOptions{}))
			if namesOf(all) != c.want || c.fails != apierrors.IsResourceExpired(err) || !c.fails && err != nil {
				t.Errorf("got %q, %v", namesOf(all), err)
			}
		})
	}
}

func TestListLiveErrors(t *testing.T) {
	api := sim.NewServer(widgets)
	c, err := client.New(api.Config(), client.Options{Scheme: jsonScheme(t)})
	testkit.NoError(t, err)
	_, err = client.Collect(client.For[*widget](c).ListLive(t.Context(), client.ListOptions{}))
	wants(t, err, "list widget", "widgetList of example.com/v1", "add the type of the list")

	api = sim.NewServer(sim.ConfigMaps)
	maps := client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
	pages(api, "abcd", func(r *sim.Request, token string) (*http.Response, error) {
		if token == "b" {
			return r.Fail(http.StatusForbidden, "no")
		}
		return nil, nil
	})
	var seen []error
	for _, err := range maps.ListLive(t.Context(), client.ListOptions{}) {
		seen = append(seen, err)
	}
	if len(seen) != 2 || seen[0] != nil || !apierrors.IsForbidden(seen[1]) {
		t.Errorf("got %v", seen)
	}
	stopped := errors.New("stopped")
	if err := func() error {
		for range maps.ListLive(t.Context(), client.ListOptions{}) {
			return stopped
		}
		return nil
	}(); !errors.Is(err, stopped) {
		t.Error(err)
	}
}

// jsonScheme knows widgets, and how options are called.
func jsonScheme(t *testing.T) *k8sruntime.Scheme {
	t.Helper()
	s := k8sruntime.NewScheme()
	s.AddKnownTypes(widgetKind.GroupVersion(), &widget{})
	metav1.AddToGroupVersion(s, widgetKind.GroupVersion())
	testkit.NoError(t, corev1.AddToScheme(s))
	return s
}

// TestListLiveKeepsNoPage: an object does not keep the others of its page in memory.
func TestListLiveKeepsNoPage(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	for i := range 3 {
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprint(i)}})
	}
	all, err := client.Collect(client.For[*corev1.ConfigMap](newClient(t, api, client.Options{})).ListLive(t.Context(), client.ListOptions{}))
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	freed := make(chan struct{})
	runtime.AddCleanup(all[0], func(struct{}) { close(freed) }, struct{}{})
	kept := all[1]
	clear(all)
	for range 1000 {
		runtime.GC()
		select {
		case <-freed:
			runtime.KeepAlive(kept)
			return
		default:
			runtime.Gosched()
		}
	}
	t.Errorf("%s keeps another object in memory", kept.Name)
}
