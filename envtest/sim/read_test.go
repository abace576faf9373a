// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

const (
	protobuf = "application/vnd.kubernetes.protobuf"
	table    = "application/json;as=Table;g=meta.k8s.io;v=v1"
)

var widgets = sim.Resource{Group: "test.dev", Version: "v1", Kind: "Widget", Name: "widgets", Namespaced: true}

// get sends a GET and returns the code, the content type and the body.
func get(t *testing.T, api *sim.Server, path, accept string) (int, string, string) {
	t.Helper()
	code, header, body := exchange(t, api, http.MethodGet, path, "", "Accept", accept)
	return code, header.Get("Content-Type"), body
}

// exchange sends a request and reads the answer. The headers are names, each with its value, or "".
func exchange(t *testing.T, api *sim.Server, method, path, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	r := testkit.Must(http.NewRequestWithContext(t.Context(), method, sim.Host+path, strings.NewReader(body)))
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	resp := testkit.Must(api.RoundTrip(r))
	defer resp.Body.Close()
	data := testkit.Must(io.ReadAll(resp.Body))
	return resp.StatusCode, resp.Header, string(data)
}

func names(t *testing.T, body string) (list []string, metadata metav1.ListMeta) {
	t.Helper()
	var maps corev1.ConfigMapList
	testkit.NoError(t, json.Unmarshal([]byte(body), &maps), body)
	for _, m := range maps.Items {
		list = append(list, m.Name)
	}
	return list, maps.ListMeta
}

func wantNames(t *testing.T, body, want string) metav1.ListMeta {
	t.Helper()
	list, metadata := names(t, body)
	testkit.Equal(t, strings.Join(list, " "), want)
	return metadata
}

// TestV1_PagesShowOneVersion: all pages show the version of the first one, and count what follows.
func TestV1_PagesShowOneVersion(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	for _, name := range []string{"d", "b", "a", "c"} {
		api.Put(sim.ConfigMaps, configMap(name))
	}
	_, _, body := get(t, api, "/api/v1/configmaps?limit=2", "")
	first := wantNames(t, body, "a b")
	testkit.Equal(t, *first.RemainingItemCount, 2)
	api.Put(sim.ConfigMaps, configMap("e"))
	api.Remove(sim.ConfigMaps, "default", "d")
	_, _, body = get(t, api, "/api/v1/configmaps?limit=2&continue="+first.Continue, "")
	last := wantNames(t, body, "c d")
	testkit.Equal(t, last.Continue, "")
	testkit.Equal(t, last.ResourceVersion, first.ResourceVersion)
	_, _, body = get(t, api, "/api/v1/configmaps", "")
	wantNames(t, body, "a b c e")
}

// TestV1_AnExpiredPageContinuesInconsistently: 410 has a token that continues at the newest
// version.
func TestV1_AnExpiredPageContinuesInconsistently(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	for _, name := range []string{"a", "b", "c"} {
		api.Put(sim.ConfigMaps, configMap(name))
	}
	_, _, body := get(t, api, "/api/v1/namespaces/default/configmaps?limit=1", "")
	first := wantNames(t, body, "a")
	api.Put(sim.ConfigMaps, configMap("bb"))
	api.Expire()
	code, _, body := get(t, api, "/api/v1/namespaces/default/configmaps?limit=2&continue="+first.Continue, "")
	var status metav1.Status
	testkit.NoError(t, json.Unmarshal([]byte(body), &status))
	testkit.Equal(t, code, http.StatusGone)
	testkit.Equal(t, status.Reason, metav1.StatusReasonExpired)
	const old = "The provided continue parameter is too old to display a consistent list result."
	testkit.HasPrefix(t, status.Message, old)
	_, _, body = get(t, api, "/api/v1/namespaces/default/configmaps?limit=2&continue="+status.Continue, "")
	next := wantNames(t, body, "b bb")
	testkit.Equal(t, next.ResourceVersion, api.Version())
	testkit.DeepEqual(t, next.RemainingItemCount, new(int64(1)))
	code, _, body = get(t, api, "/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion="+first.ResourceVersion, "")
	testkit.Equal(t, code, http.StatusGone)
	testkit.Contains(t, body, "The resourceVersion for the provided list is too old.")
}

// TestV1_FormsOfBuiltinKinds: a client that asks for protobuf gets it, with the same contents.
func TestV1_FormsOfBuiltinKinds(t *testing.T) {
	api := sim.NewServer(sim.Deployments, sim.ConfigMaps, widgets)
	three := int32(3)
	api.Put(sim.Deployments, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: &three},
	})
	api.Put(widgets, &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "default", "name": "w"}}})
	for _, proto := range []bool{false, true} {
		deploys := appsclient.NewForConfigOrDie(config(api, proto)).Deployments("")
		list, err := deploys.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || *list.Items[0].Spec.Replicas != 3 || list.ResourceVersion != api.Version() {
			t.Errorf("list: %+v, %v", list, err)
		}
		w := testkit.Must(deploys.Watch(t.Context(), metav1.ListOptions{AllowWatchBookmarks: true}))
		e := <-w.ResultChan()
		testkit.Equal(t, e.Type, watch.Added)
		d, is := e.Object.(*appsv1.Deployment)
		testkit.Equal(t, is && *d.Spec.Replicas == 3, true, e.Object)
		e = <-w.ResultChan()
		if d, ok := e.Object.(*appsv1.Deployment); !ok || e.Type != watch.Bookmark || d.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			t.Errorf("watch: %+v", e)
		}
		w.Stop()
	}
	for _, c := range []struct{ path, accept, want string }{
		{"/apis/apps/v1/deployments", protobuf, "200 " + protobuf},
		{"/apis/apps/v1/namespaces/default/deployments/x", protobuf, "404 " + protobuf},
		{"/apis/apps/v1/deployments?watch=1&timeoutSeconds=1", "application/yaml", "406 application/yaml"},
		{"/apis/apps/v1/deployments", "application/yaml", "200 application/yaml"},
		{"/apis/apps/v1/deployments", "application/cbor", "406 application/json"},
		{"/apis/apps/v1/deployments", "application/cbor,application/json", "200 application/json"},
		{"/apis/test.dev/v1/widgets", protobuf, "406 " + protobuf},
		{"/apis/test.dev/v1/widgets", protobuf + ",application/json", "200 application/json"},
		{"/apis/test.dev/v1/widgets", protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "200 " + protobuf},
		{"/apis/test.dev/v1/widgets", "application/json;as=Nothing;g=meta.k8s.io;v=v1", "406 application/json"},
		{"/apis/test.dev/v1/widgets", table, "200 application/json"},
	} {
		code, contentType, body := get(t, api, c.path, c.accept)
		testkit.Equal(t, fmt.Sprint(code, " ", contentType), c.want, c.path, c.accept, body)
	}
}

// TestV1_MetadataOnlyOverProtobuf: the items of a PartialObjectMetadataList can be decoded.
func TestV1_MetadataOnlyOverProtobuf(t *testing.T) {
	api := sim.NewServer(widgets)
	api.Put(widgets, &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "default", "name": "w"}}})
	_, _, body := get(t, api, "/apis/test.dev/v1/widgets", protobuf+";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	var envelope runtime.Unknown
	var list metav1.PartialObjectMetadataList
	testkit.NoError(t, envelope.Unmarshal([]byte(strings.TrimPrefix(body, "k8s\x00"))))
	if err := list.Unmarshal(envelope.Raw); err != nil || len(list.Items) != 1 || list.Items[0].Name != "w" || list.ResourceVersion != api.Version() {
		t.Errorf("got %+v, %v", list, err)
	}
}

// TestV1_HistoryIsBounded: the sim forgets old events. A watch from such a version receives 410,
// and a watch whose reader is too slow ends.
func TestV1_HistoryIsBounded(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	api.Put(sim.ConfigMaps, configMap("a"))
	from := api.Version()
	slow := open(t, api, "/api/v1/configmaps?watch=1&resourceVersion="+from, "")
	for i := range 10_001 {
		api.Put(sim.ConfigMaps, configMap("a", fmt.Sprint(i)))
	}
	data, err := io.ReadAll(slow)
	testkit.NoError(t, err, "a slow watch")
	testkit.Equal(t, len(data), 0, "a slow watch")
	_, _, body := get(t, api, "/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion="+from, "")
	testkit.HasPrefix(t, body, `{"type":"ERROR"`)
	testkit.Contains(t, body, `"message":"too old resource version: `+from)
	_, _, body = get(t, api, "/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=9000", "")
	testkit.AtLeast(t, strings.Count(body, "MODIFIED"), 1000, "a watch from a newer version")
}

// TestV1_BookmarksComeEachMinuteAndBeforeTheEnd also shows that they need a request for them.
func TestV1_BookmarksComeEachMinuteAndBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		begin := time.Now()
		body := open(t, api, "/api/v1/configmaps?watch=1&timeoutSeconds=90&allowWatchBookmarks=1&resourceVersion="+api.Version(), "")
		var got []string
		for buf := make([]byte, 1<<10); ; {
			_, err := body.Read(buf)
			if err != nil {
				got = append(got, fmt.Sprint("end ", time.Since(begin)))
				break
			}
			got = append(got, string(buf[2:6])+fmt.Sprint(" ", time.Since(begin)))
		}
		testkit.Equal(t, fmt.Sprint(got), "[type 1m0s type 1m28s end 1m30s]")
		_, _, rest := get(t, api, "/api/v1/configmaps?watch=1&timeoutSeconds=90&resourceVersion="+api.Version(), "")
		testkit.Equal(t, rest, "", "without a request")
	})
}

// TestV1_DeletedHasTheLastStateAndTheVersionOfTheDeletion, also if an object leaves the selector.
func TestV1_DeletedHasTheLastStateAndTheVersionOfTheDeletion(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	in := configMap("a", "x")
	in.Labels = map[string]string{"l": "1"}
	api.Put(sim.ConfigMaps, in)
	from := api.Version()
	api.Put(sim.ConfigMaps, configMap("a", "y"))
	left := api.Version()
	api.Put(sim.ConfigMaps, in)
	api.Remove(sim.ConfigMaps, "default", "a")
	_, _, body := get(t, api, "/api/v1/watch/namespaces/default/configmaps/a?timeoutSeconds=1&labelSelector=l=1&resourceVersion="+from, "")
	for i, line := range strings.Split(strings.TrimSpace(body), "\n") {
		var e struct {
			Type   string
			Object corev1.ConfigMap
		}
		testkit.NoError(t, json.Unmarshal([]byte(line), &e), line)
		want := []string{"DELETED " + left, "ADDED", "DELETED " + api.Version()}[i]
		testkit.HasPrefix(t, e.Type+" "+e.Object.ResourceVersion, want)
		testkit.Equal(t, e.Object.Data["x"], "x", line)
		testkit.Equal(t, e.Object.Labels["l"], "1", line)
	}
}
