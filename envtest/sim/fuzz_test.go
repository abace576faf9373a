// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// manifests are valid objects of the kinds whose code has branches of its own, by collection.
var manifests = map[string]string{
	"/api/v1/namespaces": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","finalizers":["x.dev/f"]},` +
		`"spec":{"finalizers":["kubernetes"]}}`,
	"/api/v1/nodes": `{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"},"spec":{"taints":[{"key":"k",` +
		`"effect":"NoSchedule"}]}}`,
	"/api/v1/persistentvolumes": `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"a"},` +
		`"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/a"}}}`,
	"/api/v1/namespaces/default/configmaps": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"a":"b"},` +
		`"annotations":{"c":"d"},"finalizers":["x.dev/f"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u",` +
		`"blockOwnerDeletion":true}]},"data":{"k":"v"},"binaryData":{"b":"YQ=="},"immutable":false}`,
	"/api/v1/namespaces/default/secrets": `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"type":"Opaque","data":{"k":"YQ=="},` +
		`"stringData":{"s":"v"}}`,
	"/api/v1/namespaces/default/services": `{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},` +
		`"spec":{"type":"NodePort","selector":{"a":"b"},"ports":[{"name":"h","port":80,"targetPort":"web","protocol":"TCP",` +
		`"nodePort":30001},{"name":"i","port":81}],"clusterIP":"10.0.0.9"}}`,
	"/api/v1/namespaces/default/pods": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"terminationGracePeriodSeconds":30,` +
		`"nodeName":"n","tolerations":[{"key":"k","operator":"Exists"}],` +
		`"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}},"ports":[{"containerPort":80}],` +
		`"env":[{"name":"e","value":"v"}]}],"volumes":[{"name":"v","emptyDir":{}}]},"status":{"phase":"Running"}}`,
	"/api/v1/namespaces/default/events": `{"apiVersion":"v1","kind":"Event","metadata":{"name":"a","namespace":"default"},` +
		`"involvedObject":{"kind":"Pod","namespace":"default","name":"a"},"reason":"r","count":1}`,
	"/api/v1/namespaces/default/persistentvolumeclaims": `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"a"},` +
		`"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
	"/apis/apps/v1/namespaces/default/deployments": `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generateName":"a-"},` +
		`"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},` +
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
	"/apis/apps/v1/namespaces/default/statefulsets": `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"a"},` +
		`"spec":{"serviceName":"s","selector":{"matchLabels":{"a":"b"}},` +
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}},` +
		`"volumeClaimTemplates":[{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"]}}]}}`,
	"/apis/apps/v1/namespaces/default/daemonsets": `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"a",` +
		`"annotations":{"deprecated.daemonset.template.generation":"1"}},"spec":{"selector":{"matchLabels":{"a":"b"}},` +
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
	"/apis/batch/v1/namespaces/default/jobs": `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a"},"spec":{"manualSelector":false,` +
		`"template":{"metadata":{"labels":{"a":"b"}},` +
		`"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`,
	"/apis/coordination.k8s.io/v1/namespaces/default/leases": `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease",` +
		`"metadata":{"name":"a"},"spec":{"leaseDurationSeconds":15,"holderIdentity":"h","renewTime":"2024-01-01T00:00:00.000000Z"}}`,
	"/apis/rbac.authorization.k8s.io/v1/clusterroles": `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole",` +
		`"metadata":{"name":"a"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`,
	"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers": `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler",` +
		`"metadata":{"name":"a"},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"a"},"maxReplicas":3}}`,
	"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": `{"apiVersion":"authorization.k8s.io/v1",` +
		`"kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`,
	"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",` +
		`"metadata":{"name":"things.a.dev"},"spec":{"group":"a.dev","scope":"Namespaced","conversion":{"strategy":"None"},` +
		`"names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList","shortNames":["th"]},"versions":[{"name":"v1",` +
		`"served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object"}}}},` +
		`"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas",` +
		`"labelSelectorPath":".status.selector"}},"selectableFields":[{"jsonPath":".spec.color"}],` +
		`"additionalPrinterColumns":[{"name":"c","type":"string","jsonPath":".spec.color"}]}]}}`,
	"/apis/a.dev/v1/namespaces/default/things": `{"apiVersion":"a.dev/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"color":"red",` +
		`"replicas":1},"status":{"replicas":1,"selector":"a=b"}}`,
}

// oddServer has one object of each manifest.
func oddServer(t testing.TB) *sim.Server {
	t.Helper()
	api := sim.New(t, scheme.Scheme)
	crds := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for _, path := range append([]string{crds}, sortedPaths()...) {
		if resp := sendOdd(t, api, http.MethodPost, path, "", "application/json",
			"", manifests[path]); resp.code >= 400 && (path != crds || resp.code != http.StatusConflict) {
			t.Fatalf("%s: %+v", path, resp)
		}
	}
	return api
}

func sortedPaths() []string {
	var all []string
	for path := range manifests {
		all = append(all, path)
	}
	slices.Sort(all)
	return all
}

type oddAnswer struct {
	code      int
	mediaType string
	body      string
}

// sendOdd sends a request that may be malformed, and checks that it has a well-formed answer.
func sendOdd(t testing.TB, api *sim.Server, method, path, query, contentType, accept, body string) oddAnswer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := (&http.Request{
		Method: method, URL: &url.URL{Scheme: "https", Host: "sim.test", Path: path, RawQuery: query}, Host: "sim.test",
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	for name, value := range map[string]string{"Content-Type": contentType, "Accept": accept} {
		if value != "" {
			h.Header.Set(name, value)
		}
	}
	resp, err := api.RoundTrip(h)
	testkit.NoError(t, err, "no answer")
	defer resp.Body.Close()
	answer := oddAnswer{code: resp.StatusCode, mediaType: resp.Header.Get("Content-Type")}
	if resp.ContentLength < 0 { // a watch
		return answer
	}
	data, err := io.ReadAll(resp.Body)
	answer.body = string(data)
	if err != nil || resp.StatusCode < 200 || resp.StatusCode > 599 {
		t.Fatalf("%+v, %v", answer, err)
	}
	if answer.mediaType != "application/json" {
		return answer
	}
	var status metav1.Status
	switch err := json.Unmarshal(data, &status); {
	case err != nil && resp.StatusCode < 400:
		var any map[string]json.RawMessage
		if err := json.Unmarshal(data, &any); err != nil && len(data) > 0 {
			t.Fatalf("the answer is not JSON: %+v, %v", answer, err)
		}
	case err != nil:
		t.Fatalf("the error is no Status: %+v, %v", answer, err)
	case resp.StatusCode >= 400 && (status.Kind != "Status" || int(status.Code) != resp.StatusCode || status.Message == "" && status.Reason == ""):
		t.Fatalf("the error is no Status: %+v", answer)
	}
	return answer
}

var (
	oddMethods = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "", "get", "FOO"}
	oddTypes   = []string{
		"application/json", "application/yaml", "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
		"application/apply-patch+yaml", "application/apply-patch+cbor", "application/vnd.kubernetes.protobuf", "", "text/plain",
		"application/json; charset=\xff", ";",
	}
	oddAccepts = []string{
		"", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v1;g=meta.k8s.io", "*/*", "a/b",
		";;;q=",
		"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
		"application/json;as=X;v=v9;g=y", "application/json;pretty=1",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/cbor", "application/json;stream=watch",
		"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
	}
	oddQueries = []string{
		"", "limit=1", "limit=-1", "limit=9223372036854775807", "limit=99999999999999999999", "limit=x", "continue=x", "continue=e30",
		"continue=" + strings.Repeat("A", 9999),
		"limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OTIyMzM3MjAzNjg1NDc3NTgwNywic3RhcnQiOiIvYSJ9",
		"continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLy4uLyJ9",
		"continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTkyMjMzNzIwMzY4NTQ3NzU4MDgsInN0YXJ0IjoiL1x1MDAwMCJ9", "continue=bnVsbA", "continue=W10",
		"resourceVersion=0", "resourceVersion=-1", "resourceVersion=18446744073709551615", "resourceVersion=18446744073709551616",
		"resourceVersion=1&resourceVersionMatch=Exact",
		"resourceVersion=3&resourceVersionMatch=Exact&limit=2", "resourceVersionMatch=NotOlderThan", "resourceVersionMatch=x&resourceVersion=x",
		"labelSelector=a%3Db", "labelSelector=a+in+(", "labelSelector=%00",
		"labelSelector=" + strings.Repeat("a,", 5000), "labelSelector=!!a", "fieldSelector=metadata.name%3Da", "fieldSelector=metadata.name%3D",
		"fieldSelector=a", "fieldSelector=%5C", "fieldSelector=spec.color%3Dred",
		"fieldSelector=metadata.namespace%3Ddefault", "fieldSelector=metadata.name!%3Da", "watch=1&timeoutSeconds=1", "watch=true&resourceVersion=1",
		"watch=1&resourceVersion=99999999999", "watch=x",
		"watch=1&timeoutSeconds=9223372036854775807", "watch=1&timeoutSeconds=-1",
		"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1", "watch=1&sendInitialEvents=true",
		"watch=1&resourceVersion=-5", "watch=1&resourceVersion=x", "watch=1&limit=1&continue=a",
		"dryRun=All", "dryRun=x", "dryRun=All&dryRun=All",
		"fieldManager=" + strings.Repeat("m", 200), "fieldManager=%00&force=true", "fieldManager=m", "force=x&fieldManager=m",
		"fieldManager=m&force=true", "fieldValidation=Strict", "fieldValidation=Ignore&fieldManager=m", "fieldValidation=x", "gracePeriodSeconds=-1",
		"gracePeriodSeconds=9223372036854775807", "gracePeriodSeconds=x", "propagationPolicy=Foreground", "propagationPolicy=Orphan",
		"propagationPolicy=x", "orphanDependents=true", "orphanDependents=true&propagationPolicy=Orphan", "%zz", "a;b", "&&&=", "pretty=true",
		"timeout=1s", "includeObject=Object", "includeObject=x", "ignoreStoreReadErrorWithClusterBreakingPotential=true",
	}
	oddValues = []string{
		`null`, `true`, `0`, `-1`, `1.5`, `1e400`, `1e18`, `9223372036854775807`, `9223372036854775808`, `18446744073709551616`, `-9223372036854775809`,
		`""`, `"\ud800"`, `"` + "\xff\xfe" + `"`, `"\u0000"`, `"a/b"`, `".."`,
		`"` + strings.Repeat("x", 300) + `"`, `"kubernetes"`, `"foregroundDeletion"`, `"orphan"`, `"2024-01-01T00:00:00Z"`, `"99999-01-01T00:00:00Z"`,
		`"1Gi"`, `"-1"`, `"%d%s"`, `[]`, `[null]`, `[[]]`, `[{}]`, `[{"name":"a"},{"name":"a"}]`, `["a","a"]`, `[1]`,
		`{}`, `{"":""}`, `{"a":null}`, `{"a":{"a":{}}}`, `{"a":1,"a":2}`, `{"$patch":"delete"}`, `{"$patch":"replace"}`, `[{"$patch":"delete",` +
			`"name":"c"}]`, `{"$retainKeys":["a"]}`, `{"$setElementOrder/containers":[{"name":"z"}]}`, `{"f:a":{}}`,
		strings.Repeat("[", 500) + strings.Repeat("]", 500), strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500),
		`[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]`,
		`[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"x":1}}]`,
		`[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"u","controller":true},{"apiVersion":"v1","kind":"ConfigMap","name":"b",` +
			`"uid":"v","controller":true}]`,
	}
	oddFields = []string{
		"name", "namespace", "uid", "resourceVersion", "generation", "finalizers", "ownerReferences", "managedFields", "labels", "annotations",
		"deletionTimestamp", "deletionGracePeriodSeconds", "creationTimestamp", "generateName",
		"selfLink", "spec", "status", "metadata", "apiVersion", "kind", "unknown", "$patch", "$deleteFromPrimitiveList/finalizers",
		"$setElementOrder/finalizers", "",
	}
)

// mutate returns a manifest with changes at random places.
func mutate(rng *rand.Rand, manifest string) string {
	var root any
	if err := json.Unmarshal([]byte(manifest), &root); err != nil {
		panic(err)
	}
	texts := map[string]string{}
	for range 1 + rng.IntN(3) {
		var holders []any
		var walk func(any)
		walk = func(v any) {
			switch v := v.(type) {
			case map[string]any:
				holders = append(holders, v)
				for _, name := range sortedNames(v) {
					walk(v[name])
				}
			case []any:
				if len(v) > 0 {
					holders = append(holders, v)
				}
				for _, item := range v {
					walk(item)
				}
			}
		}
		walk(root)
		mark := fmt.Sprintf("@@%d@@", len(texts))
		texts[`"`+mark+`"`] = oddValues[rng.IntN(len(oddValues))]
		switch h := holders[rng.IntN(len(holders))].(type) {
		case map[string]any:
			names := sortedNames(h)
			switch {
			case len(names) == 0 || rng.IntN(4) == 0:
				h[oddFields[rng.IntN(len(oddFields))]] = mark
			case rng.IntN(6) == 0:
				delete(h, names[rng.IntN(len(names))])
			default:
				h[names[rng.IntN(len(names))]] = mark
			}
		case []any:
			h[rng.IntN(len(h))] = mark
		}
	}
	data, err := json.Marshal(root)
	if err != nil {
		panic(err)
	}
	text := string(data)
	for mark, value := range texts {
		text = strings.ReplaceAll(text, mark, value)
	}
	if rng.IntN(40) == 0 {
		text = text[:rng.IntN(len(text)+1)]
	}
	return text
}

func sortedNames(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// operations returns a JSON patch of random operations.
func operations(rng *rand.Rand) string {
	paths := []string{"", "/", "/metadata", "/metadata/labels", "/metadata/labels/a~1b", "/spec", "/spec/containers/0", "/spec/containers/-",
		"/data/k", "/status", "/metadata/finalizers/9", "/a~", "/metadata/name", "x"}
	var all []string
	for range 1 + rng.IntN(4) {
		op := []string{"add", "remove", "replace", "move", "copy", "test", "x", ""}[rng.IntN(8)]
		all = append(all, fmt.Sprintf(`{"op":%q,"path":%q,"from":%q,`+
			`"value":%s}`, op, paths[rng.IntN(len(paths))], paths[rng.IntN(len(paths))], oddValues[rng.IntN(len(oddValues))]))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// oddRequest returns a request to one of the collections, or to an object in it.
func oddRequest(rng *rand.Rand, paths []string) (method, path, query, contentType, accept, body string) {
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	path = pick(paths)
	body = mutate(rng, manifests[path])
	if rng.IntN(8) == 0 {
		body = operations(rng)
	}
	method, contentType = pick(oddMethods[:5]), oddTypes[0]
	if rng.IntN(2) == 0 {
		query = pick(oddQueries)
	}
	switch {
	case method == http.MethodPatch:
		contentType = pick(oddTypes[2:6])
		if contentType == oddTypes[2] {
			body = operations(rng)
		}
		if contentType == oddTypes[5] && rng.IntN(4) > 0 {
			query = "fieldManager=m&force=true"
		}
	case rng.IntN(8) == 0:
		contentType = pick(oddTypes)
	}
	if rng.IntN(4) == 0 {
		accept = pick(oddAccepts)
	}
	if rng.IntN(20) == 0 {
		method = pick(oddMethods)
	}
	if method == http.MethodDelete && rng.IntN(2) == 0 {
		body = pick([]string{"", "{}", `{"kind":"DeleteOptions","apiVersion":"v1",` +
			`"propagationPolicy":"Foreground"}`, `{"preconditions":{"uid":"x"}}`, `{"gracePeriodSeconds":1}`, `{"dryRun":["All"]}`, `[]`, `null`, "\x00"})
	}
	if method != http.MethodPost || rng.IntN(10) == 0 {
		path += "/" + pick([]string{"a", "a", "a", "a", "things.a.dev", "b", "..", "%", "a/status", "a/scale", "a/finalize", "a/status", "a/x",
			"\xff", strings.Repeat("n", 300), "", "/"})
	}
	return method, path, query, contentType, accept, body
}

// TestOddRequests: a malformed request has an answer, and if that is an error, it is a Status.
func TestOddRequests(t *testing.T) {
	rounds := 4000
	if testing.Short() {
		rounds = 400
	}
	paths := sortedPaths()
	codes := map[int]int{}
	var api *sim.Server
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 1)) //nolint:gosec // no secret
		if seed%100 == 0 {
			api = oddServer(t)
		}
		method, path, query, contentType, accept, body := oddRequest(rng, paths)
		func() {
			defer func() {
				if r := recover(); r != nil {
					t.Fatalf("seed %d: %s %s?%s %s %s\n%s\npanic: %v", seed, method, path, query, contentType, accept, body, r)
				}
			}()
			codes[sendOdd(t, api, method, path, query, contentType, accept, body).code]++
		}()
	}
	t.Log(codes)
	if codes[http.StatusOK]+codes[http.StatusCreated] < rounds/20 {
		t.Errorf("the requests reach too little: %v", codes)
	}
}

// FuzzRequests: no request, however malformed, makes the server panic; each has an answer, and if
// that is an error, it is a Status.
func FuzzRequests(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // no secret
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	for path, body := range manifests {
		f.Add("POST", path, "", "application/json", "", body)
		for range 5 {
			f.Add(pick(oddMethods), path+"/a", pick(oddQueries), pick(oddTypes), pick(oddAccepts), mutate(rng, body))
		}
	}
	for _, query := range oddQueries {
		f.Add("GET", "/api/v1/namespaces/default/configmaps", query, "", pick(oddAccepts), "")
		f.Add("DELETE", "/api/v1/namespaces/default/configmaps", query, "", "", "{}")
	}
	for _, path := range []string{"", "/", "//", "/api", "/api/", "/api/v1/", "/apis", "/apis/a", "/apis/a.dev/v1", "/version", "/healthz",
		"/api/v1/watch/pods/x", "/api/v1/namespaces//pods", "/api/v1/proxy/x", "/openapi/v3", "/\x00"} {
		f.Add("GET", path, "", "", pick(oddAccepts), "")
	}
	api, used := oddServer(f), 0
	f.Fuzz(func(t *testing.T, method, path, query, contentType, accept, body string) {
		if used++; used%500 == 0 {
			api = oddServer(f)
		}
		sendOdd(t, api, method, path, query, contentType, accept, body)
	})
}
