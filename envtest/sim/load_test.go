// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestV3_CloseDuringMixedLoad: 50 clients mix all verbs, watches open and close, a
// CustomResourceDefinition and rules come and go, and Close ends it all. It is for the race
// detector.
func TestV3_CloseDuringMixedLoad(t *testing.T) {
	api := oddServer(t)
	paths := sortedPaths()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	answers := make(chan int, 100)
	for i := range 50 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 7)) //nolint:gosec // no secret
			for {
				code, ok := request(ctx, api, rng, paths[rng.IntN(len(paths))])
				if !ok {
					return
				}
				select {
				case answers <- code:
				default:
				}
			}
		})
	}
	clients.Go(func() { // another client, and the test itself
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			default:
			}
			f := api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"update"}}, Times: 1 + i%2, Hold: i%3 == 0, Lose: i%3 == 1, Deliver: i%2 == 0})
			api.Put(sim.ConfigMaps, configMap("put", fmt.Sprint(i)))
			api.Remove(sim.ConfigMaps, "default", "put")
			_ = api.Requests()
			_ = api.Count("get", sim.Pods)
			_ = api.Cut(fault.Match{Verbs: []string{"watch"}})
			if i%50 == 0 {
				api.CutWatches()
				api.Expire()
			}
			f.Release()
			f.Remove()
			runtime.Gosched()
		}
	})
	for range 2000 {
		<-answers
	}
	api.Close()
	cancel()
	clients.Wait()
	testkit.Equal(t, api.Watches(), 0, "after Close")
}

// request sends a random request for an object of a collection, until the server is closed.
func request(ctx context.Context, api *sim.Server, rng *rand.Rand, path string) (code int, ok bool) {
	body, name := manifests[path], "/a"
	if strings.Contains(body, `"things.a.dev"`) {
		name = "/things.a.dev"
	}
	method, url, contentType := http.MethodGet, path+name, "application/json"
	switch rng.IntN(9) {
	case 0, 1:
		method, url = http.MethodPost, path
	case 2:
		method = http.MethodPut
	case 3:
		method, contentType = http.MethodPatch, "application/merge-patch+json"
		body = fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"},"finalizers":null}}`, rng.IntN(100))
	case 4:
		method, contentType, url = http.MethodPatch, "application/apply-patch+yaml", url+fmt.Sprintf("?fieldManager=m%d&force=true", rng.IntN(3))
	case 5:
		method, body = http.MethodDelete, ""
	case 6:
		url = path + fmt.Sprintf("?limit=%d", rng.IntN(3))
	case 7:
		url = path + "?watch=1&allowWatchBookmarks=true&resourceVersion=0"
	}
	h, err := http.NewRequestWithContext(ctx, method, sim.Host+url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	h.Header.Set("Content-Type", contentType)
	resp, err := api.RoundTrip(h)
	if err != nil {
		return 0, ctx.Err() == nil && !strings.Contains(err.Error(), "closed")
	}
	defer resp.Body.Close()
	if resp.ContentLength < 0 && rng.IntN(2) == 0 {
		_, _ = resp.Body.Read(make([]byte, 100))
	} else if resp.ContentLength >= 0 {
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	return resp.StatusCode, true
}

// TestRequests_AreBounded: a server that has answered many large requests keeps neither their
// bodies nor an endless list of them.
func TestRequests_AreBounded(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	api.Put(sim.ConfigMaps, configMap("m", "x"))
	large := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"default"},"data":{"k":"` + strings.Repeat("x", 100_000) + `"}}`
	path := "/api/v1/namespaces/default/configmaps/m"
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	for range 500 { // 50 MB in, 50 MB out
		code, _ := ask(t, api, http.MethodPut, path+"?dryRun=All", large)
		testkit.Equal(t, code, http.StatusOK)
	}
	if grown := int64(heap()) - int64(before); grown > 10<<20 { //nolint:gosec // both are small
		t.Errorf("500 requests of 100 kB without effect keep %d MB", grown>>20)
	}
	for range 12_000 {
		ask(t, api, http.MethodGet, path, "")
	}
	testkit.Equal(t, len(api.Requests()), 10_000)
	testkit.Equal(t, api.Count("get", sim.ConfigMaps), 12_000)
	runtime.KeepAlive(api)
}

// owned is a ConfigMap with the given owner.
func owned(name string, owner metav1.OwnerReference) *corev1.ConfigMap {
	m := configMap(name, "x")
	m.OwnerReferences = []metav1.OwnerReference{owner}
	return m
}

// TestLargeDeletions: deletions with dependents, of a namespace and of a collection leave nothing
// but what they should. With -v it prints how their time grows with the number of objects.
func TestLargeDeletions(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, n int) time.Duration{
		"background": func(t *testing.T, n int) time.Duration { return deleteOwner(t, n, metav1.DeletePropagationBackground) },
		"foreground": func(t *testing.T, n int) time.Duration { return deleteOwner(t, n, metav1.DeletePropagationForeground) },
		"orphan":     func(t *testing.T, n int) time.Duration { return deleteOwner(t, n, metav1.DeletePropagationOrphan) },
		"namespace":  deleteNamespace, "finalizers": finalizeNamespace, "collection": deleteCollection,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 100) // warm
			small, large := run(t, 300), run(t, 3000)
			t.Logf("300 objects: %v, 3,000 objects: %v", small.Round(time.Millisecond), large.Round(time.Millisecond))
		})
	}
}

func deleteOwner(t *testing.T, n int, policy metav1.DeletionPropagation) time.Duration {
	t.Helper()
	api := sim.NewServer(sim.Namespaces, sim.ConfigMaps, sim.Secrets)
	uid := api.Put(sim.ConfigMaps, configMap("owner", "x")).GetUID()
	block := true
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: uid, BlockOwnerDeletion: &block}
	for i := range n {
		api.Put(sim.ConfigMaps, owned(fmt.Sprintf("m%05d", i), ref))
	}
	begin := time.Now()
	code, body := ask(t, api, http.MethodDelete, "/api/v1/namespaces/default/configmaps/owner?propagationPolicy="+string(policy), "")
	testkit.Equal(t, code, http.StatusOK, body)
	took := time.Since(begin)
	want := 0
	if policy == metav1.DeletePropagationOrphan {
		want = n
	}
	testkit.Equal(t, api.Stored(sim.ConfigMaps), want)
	return took
}

func deleteNamespace(t *testing.T, n int) time.Duration {
	t.Helper()
	api := sim.NewServer(sim.Namespaces, sim.ConfigMaps, sim.Secrets)
	for i := range n {
		m := configMap(fmt.Sprintf("m%05d", i), "x")
		m.Namespace = "a"
		api.Put(sim.ConfigMaps, m)
	}
	begin := time.Now()
	code, body := ask(t, api, http.MethodDelete, "/api/v1/namespaces/a", "")
	testkit.Equal(t, code, http.StatusOK, body)
	took := time.Since(begin)
	testkit.Equal(t, api.Stored(sim.ConfigMaps), 0)
	testkit.Equal(t, api.Object(sim.Namespaces, "", "a"), nil)
	return took
}

func deleteCollection(t *testing.T, n int) time.Duration {
	t.Helper()
	api := sim.NewServer(sim.Namespaces, sim.ConfigMaps, sim.Secrets)
	for i := range n {
		api.Put(sim.ConfigMaps, configMap(fmt.Sprintf("m%05d", i), "x"))
	}
	begin := time.Now()
	code, _ := ask(t, api, http.MethodDelete, "/api/v1/namespaces/default/configmaps", "")
	testkit.Equal(t, code, http.StatusOK)
	return time.Since(begin)
}

// finalizeNamespace removes the finalizers of 50 of a terminating namespace's objects.
func finalizeNamespace(t *testing.T, n int) time.Duration {
	t.Helper()
	api := sim.NewServer(sim.Namespaces, sim.ConfigMaps, sim.Secrets)
	for i := range n {
		m := configMap(fmt.Sprintf("m%05d", i), "x")
		m.Namespace, m.Finalizers = "a", []string{"x.dev/f"}
		api.Put(sim.ConfigMaps, m)
	}
	ask(t, api, http.MethodDelete, "/api/v1/namespaces/a", "")
	begin := time.Now()
	for i := range 50 {
		testkit.Equal(t, api.Remove(sim.ConfigMaps, "a", fmt.Sprintf("m%05d", i)), true, i)
	}
	return time.Since(begin)
}

// TestV1_NamespaceDeletion_CountsAnObjectOnce: an object of a kind with two versions is one of the
// instances that remain.
func TestV1_NamespaceDeletion_CountsAnObjectOnce(t *testing.T) {
	g := &Gadget{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "g", Finalizers: []string{"x.dev/f"}}}
	api := sim.New(t, gadgetScheme(t), g)
	code, body := ask(t, api, http.MethodDelete, "/api/v1/namespaces/a", "")
	testkit.Equal(t, code, http.StatusOK, body)
	_, body = ask(t, api, http.MethodGet, "/api/v1/namespaces/a", "")
	testkit.Contains(t, body, "gadgets.test.dev has 1 resource instances")
	ask(t, api, http.MethodDelete, "/apis/test.dev/v1/namespaces/a/gadgets/g", "") // no change
	code, body = sendPatch(t, api, "/apis/test.dev/v1/namespaces/a/gadgets/g", `{"metadata":{"finalizers":null}}`)
	testkit.Equal(t, code, http.StatusOK, body)
	code, _ = ask(t, api, http.MethodGet, "/api/v1/namespaces/a", "")
	testkit.Equal(t, code, http.StatusNotFound, "the namespace")
}

func sendPatch(t *testing.T, api *sim.Server, path, body string) (int, string) {
	t.Helper()
	answer := sendOdd(t, api, http.MethodPatch, path, "", "application/merge-patch+json", "", body)
	return answer.code, answer.body
}

// TestServer_HasTheMethodsOfATransport: apimachinery logs a warning about a transport without
// CloseIdleConnections at the end of every client.
func TestServer_HasTheMethodsOfATransport(t *testing.T) {
	_, ok := sim.NewServer().Config().Transport.(interface{ CloseIdleConnections() })
	testkit.Equal(t, ok, true, "each client that ends logs: unknown transport type: *sim.Server")
}

// TestPut_TakesOddObjects: what Put stores no later request trips over.
func TestPut_TakesOddObjects(t *testing.T) {
	at := metav1.Now()
	for name, odd := range map[string]metav1.ObjectMeta{
		"deleted without grace":       {DeletionTimestamp: &at, Finalizers: []string{"x.dev/f"}},
		"deleted without finalizers":  {DeletionTimestamp: &at},
		"owned by itself":             {UID: "u", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "u"}}},
		"owned by an unknown kind":    {OwnerReferences: []metav1.OwnerReference{{APIVersion: "x/v1", Kind: "X", Name: "a", UID: "u"}}},
		"with unreadable managers":    {ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "x", APIVersion: "y/z/w", FieldsType: "F"}}},
		"with the version of another": {ResourceVersion: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			api := sim.NewServer(sim.Namespaces, sim.Pods)
			odd.Name, odd.Namespace = "a", "default"
			api.Put(sim.Pods, &corev1.Pod{ObjectMeta: odd})
			path := "/api/v1/namespaces/default/pods"
			for _, r := range [][3]string{
				{"PATCH", "?fieldManager=m", `{"metadata":{"labels":{"a":"b"}}}`}, {"DELETE", "?gracePeriodSeconds=5", ""}, {"DELETE",
					"?propagationPolicy=Foreground", ""}, {"GET", "", ""},
			} {
				sendOdd(t, api, r[0], path+"/a", strings.TrimPrefix(r[1], "?"), "application/merge-patch+json", "", r[2])
			}
			sendOdd(t, api, "GET", path, "", "", "application/json;as=Table;v=v1;g=meta.k8s.io", "")
		})
	}
}

// TestV4_OwnersInACycleEnd: objects that own each other in a cycle, and block each other's
// deletion, do not hang a bubble.
func TestV4_OwnersInACycleEnd(t *testing.T) {
	for _, policy := range []string{"Foreground", "Background", "Orphan"} {
		synctest.Test(t, func(t *testing.T) {
			api := sim.NewServer(sim.ConfigMaps)
			block := true
			const n = 5
			for i := range n {
				m := configMap(fmt.Sprintf("m%d", i), "x")
				m.UID = types.UID(fmt.Sprintf("u%d", i))
				for _, of := range []int{(i + 1) % n, (i + 2) % n} {
					m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{
						APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("m%d", of), UID: types.UID(fmt.Sprintf("u%d", of)), BlockOwnerDeletion: &block,
					})
				}
				api.Put(sim.ConfigMaps, m)
			}
			for i := range n {
				ask(t, api, http.MethodDelete, fmt.Sprintf("/api/v1/namespaces/default/configmaps/m%d?propagationPolicy=%s", i, policy), "")
			}
			t.Logf("%s: %d objects are left", policy, api.Stored(sim.ConfigMaps))
		})
	}
}
