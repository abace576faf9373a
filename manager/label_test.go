// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/source"
)

// labelKey is the label of the group "operator".
const labelKey = "slot.setpoint.dev/operator"

var pageOwner = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// withPages returns an API with sites, and a page of each without a label.
func withPages(sites ...string) *sim.Server {
	api := newAPI()
	for _, name := range sites {
		site := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		api.Put(sim.ConfigMaps, site)
		page := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + ".page"}}
		page.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(site, pageOwner)}
		api.Put(sim.Secrets, page)
	}
	return api
}

// readingPages returns a manager whose Reconciles only read.
func readingPages(api http.RoundTripper, change func(*manager.Options)) *manager.Manager {
	return pagesManager(api, change, func(context.Context, types.NamespacedName) (controller.Result, error) {
		return controller.Result{}, nil
	})
}

// pagesManager returns a manager whose caches have sites and pages. It labels pages.
func pagesManager(
	api http.RoundTripper, change func(*manager.Options), reconcile controller.Func[types.NamespacedName],
) *manager.Manager {
	m := newManager(api, func(o *manager.Options) {
		sharded(o)
		o.Shards.LabelChildren, o.Strict = true, true
		if change != nil {
			change(o)
		}
	})
	sites := cache.ForScope[*corev1.ConfigMap](m.Cache(), cache.Scope{Slots: m.Slots()})
	pages := cache.ForScope[*corev1.Secret](m.Cache(), cache.Scope{Slots: m.Slots(), SlotOwner: sites.GroupVersionKind()})
	c := controller.New("site", reconcile, controller.Options{Workers: 8})
	c.Watch(source.Kind(sites, handler.Self()))
	c.Watch(source.Kind(pages, handler.Owner(sites)))
	m.Add(c)
	return m
}

func pageLabel(api *sim.Server, site string) string {
	return api.Object(sim.Secrets, "default", site+".page").GetLabels()[labelKey]
}

func rightLabel(t *testing.T, site string) string {
	t.Helper()
	slot, err := shard.ByKey().Slot(types.NamespacedName{Namespace: "default", Name: site})
	ok(t, err)
	return shard.ByKey().LabelValue(pageOwner.GroupKind(), slot)
}

// TestP8_ChildrenThatReconcilesOnlyRead: each gets one patch, also after an edit.
func TestP8_ChildrenThatReconcilesOnlyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := withPages("a", "b", "c")
		stop, result := start(t, readingPages(api, nil))
		pass(time.Minute)
		for _, site := range []string{"a", "b", "c"} {
			if got, want := pageLabel(api, site), rightLabel(t, site); got != want {
				t.Errorf("the page of %s has the label %q, want %q", site, got, want)
			}
		}
		if n := api.Count("patch", sim.Secrets); n != 3 {
			t.Errorf("%d patches for 3 pages", n)
		}
		page := api.Object(sim.Secrets, "default", "a.page")
		page.SetLabels(map[string]string{labelKey: "wrong", "other": "stays"})
		api.Put(sim.Secrets, page)
		pass(time.Second)
		if got, want := pageLabel(api, "a"), rightLabel(t, "a"); got != want || api.Object(sim.Secrets, "default", "a.page").GetLabels()["other"] != "stays" {
			t.Errorf("after an edit the label is %q, want %q", got, want)
		}
		stop()
		ok(t, result())
	})
}

// TestP8_OnlyChildrenOfOwnedSlots: a member that prepares slots has their children in its caches.
// It labels them once it owns the slots.
func TestP8_OnlyChildrenOfOwnedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sites := strings.Fields("a b c d e f g h")
		api, drained := withPages(sites...), make(chan struct{})
		owner := pagesManager(api, func(o *manager.Options) { o.Shards.LabelChildren = false },
			func(context.Context, types.NamespacedName) (controller.Result, error) {
				<-drained // until then, it gives up none of the sites' slots
				return controller.Result{}, nil
			})
		stopOwner, resultOfOwner := start(t, owner)
		pass(time.Minute)
		adopter := readingPages(api, nil)
		stop, result := start(t, adopter)
		pass(2 * time.Minute)
		prepared := preparedSites(t, adopter, sites)
		if len(prepared) == 0 {
			t.Fatal("no slot is prepared")
		}
		if n := api.Count("patch", sim.Secrets); n != 0 {
			t.Errorf("%d patches of pages in slots of another member", n)
		}
		close(drained)
		pass(time.Minute)
		for _, site := range prepared {
			if got, want := pageLabel(api, site), rightLabel(t, site); got != want {
				t.Errorf("the page of %s has the label %q, want %q", site, got, want)
			}
		}
		stop()
		ok(t, result())
		stopOwner()
		ok(t, resultOfOwner())
	})
}

// preparedSites returns the sites whose slots a member's caches keep although it does not own them.
func preparedSites(t *testing.T, m *manager.Manager, sites []string) (prepared []string) {
	t.Helper()
	owned := m.Shards().Status().Owned
	for _, site := range sites {
		slot, err := shard.ByKey().Slot(types.NamespacedName{Namespace: "default", Name: site})
		ok(t, err)
		if slices.Contains(m.Slots().Elements(), slot) && !slices.Contains(owned, int(slot)) {
			prepared = append(prepared, site)
		}
	}
	return prepared
}

func TestLabelChildren_IsOffByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := withPages("a")
		stop, result := start(t, readingPages(api, func(o *manager.Options) { o.Shards = &shard.Options{} }))
		pass(time.Minute)
		if got := pageLabel(api, "a"); got != "" {
			t.Errorf("the label is %q", got)
		}
		stop()
		ok(t, result())
	})
}

// TestP8_LabelsComeAfterAnOutage: a failed patch is repeated, and the others wait meanwhile.
func TestP8_LabelsComeAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := withPages("a", "b", "c")
		var up atomic.Bool
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Verb == "patch" && r.Resource.Resource == "secrets" && !up.Load() {
				return r.Fail(http.StatusInternalServerError, "no etcd")
			}
			return nil, nil
		})
		stop, result := start(t, readingPages(api, nil))
		pass(time.Minute)
		if n := api.Count("patch", sim.Secrets); n < 2 || n > 7 {
			t.Errorf("%d patches in a minute", n)
		}
		up.Store(true)
		pass(15 * time.Second)
		for _, site := range []string{"a", "b", "c"} {
			if got, want := pageLabel(api, site), rightLabel(t, site); got != want {
				t.Errorf("the page of %s has the label %q, want %q", site, got, want)
			}
		}
		stop()
		ok(t, result())
	})
}

// TestLabelChildren_WithoutTheRight: the log says so once for a kind, and nothing else fails.
func TestLabelChildren_WithoutTheRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := withPages("a", "b", "c")
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Verb == "patch" && r.Resource.Resource == "secrets" {
				return r.Fail(http.StatusForbidden, "no right")
			}
			return nil, nil
		})
		var log bytes.Buffer
		m := readingPages(api, func(o *manager.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		stop, result := start(t, m)
		pass(time.Minute)
		stop()
		ok(t, result())
		if n, lines := api.Count("patch", sim.Secrets), strings.Count(log.String(), "children are not labelled"); n != 1 || lines != 1 {
			t.Errorf("%d patches and %d lines, want one of each:\n%s", n, lines, &log)
		}
	})
}

// TestP8_AChildThatCannotBeLabelled delays no others, and is tried again after a pause.
func TestP8_AChildThatCannotBeLabelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sites := make([]string, 40)
		for i := range sites {
			sites[i] = fmt.Sprintf("site-%02d", i)
		}
		api := withPages(sites...)
		refused := func(name string) bool { return strings.HasPrefix(name, "site-0") }
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Verb == "patch" && r.Resource.Resource == "secrets" && refused(r.Name) {
				return r.Fail(http.StatusUnprocessableEntity, "the policy refuses it")
			}
			return nil, nil
		})
		stop, result := start(t, readingPages(api, nil))
		pass(30 * time.Second)
		for _, site := range sites {
			if got := pageLabel(api, site); !refused(site) && got != rightLabel(t, site) {
				t.Errorf("the page of %s has the label %q", site, got)
			}
		}
		if n := api.Count("patch", sim.Secrets); n < 40 || n > 30+10*4 {
			t.Errorf("%d patches", n)
		}
		stop()
		ok(t, result())
	})
}
