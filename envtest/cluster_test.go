// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	lamps      = schema.GroupVersionResource{Group: "envtest.setpoint.dev", Version: "v1", Resource: "lamps"}
	fuses      = schema.GroupVersionResource{Group: "envtest.setpoint.dev", Version: "v1", Resource: "fuses"}
)

func object(apiVersion, kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name},
	}}
}

func create(ctx context.Context, t *testing.T, r dynamic.ResourceInterface, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	made, err := r.Create(ctx, o, metav1.CreateOptions{})
	testkit.NoError(t, err)
	return made
}

// waitGone returns when an object that existed at version is deleted.
func waitGone(ctx context.Context, t *testing.T, r dynamic.ResourceInterface, name, version string) {
	t.Helper()
	watcher := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		return r.Watch(ctx, o)
	}}
	_, err := watchtools.Until(ctx, version, watcher, func(e watch.Event) (bool, error) { return e.Type == watch.Deleted, nil })
	testkit.NoError(t, err, fmt.Sprintf("%s does not go away", name))
}

// E1: the built program is the Kubernetes version that it reports.
func TestVersion(t *testing.T) {
	c := sharedCluster(t)
	version, err := c.discovery.ServerVersion()
	testkit.NoError(t, err)
	want, err := Options{}.release()
	testkit.NoError(t, err)
	testkit.Equal(t, version.GitVersion, string(want))
	testkit.Equal(t, version.Major+"."+version.Minor, want.minor())
}

func TestCRDsAreServed(t *testing.T) {
	c := sharedCluster(t)
	ctx := testContext(t)
	namespace, err := c.Namespace(ctx, "lamps")
	testkit.NoError(t, err)
	lamp := object("envtest.setpoint.dev/v1", "Lamp", "desk")
	lamp.Object["spec"] = map[string]any{"watts": int64(0)}
	r := c.dynamic.Resource(lamps).Namespace(namespace)
	testkit.ErrorSatisfies(t, testkit.Err(r.Create(ctx, lamp, metav1.CreateOptions{})), apierrors.IsInvalid, "the schema of the CRD does not count")
	lamp.Object["spec"] = map[string]any{"watts": int64(5)}
	create(ctx, t, r, lamp)
	groups, lists, err := c.discovery.ServerGroupsAndResources()
	testkit.NoError(t, err)
	for version, want := range map[string]bool{"v1": true, "v1beta1": true, "v1alpha1": false} {
		found := discovery.FilteredBy(discovery.ResourcePredicateFunc(func(gv string, _ *metav1.APIResource) bool {
			return gv == "envtest.setpoint.dev/"+version
		}), lists)
		testkit.Equal(t, len(found) > 0, want, fmt.Sprintf("discovery has version %s", version))
	}
	_ = groups
}

// After InstallCRDs, each served version can be watched immediately, as informers do.
func TestCRDsAreWatchable(t *testing.T) {
	c := sharedCluster(t)
	ctx := testContext(t)
	text, err := os.ReadFile("testdata/lamps.yaml")
	testkit.NoError(t, err)
	// New to the API server, whichever tests have run.
	fresh := filepath.Join(t.TempDir(), "candles.yaml")
	text = []byte(strings.NewReplacer("lamps", "candles", "lamp", "candle", "Lamp", "Candle").Replace(string(text)))
	testkit.NoError(t, os.WriteFile(fresh, text, 0o600))
	testkit.NoError(t, c.InstallCRDs(ctx, fresh))
	for _, version := range []string{"v1", "v1beta1"} {
		stream, err := c.discovery.RESTClient().Get().AbsPath("apis/envtest.setpoint.dev", version, "candles").
			Param("watch", "true").Param("sendInitialEvents", "true").Param("allowWatchBookmarks", "true").
			// client-go would hide a refusal.
			Param("resourceVersionMatch", "NotOlderThan").MaxRetries(0).Stream(ctx)
		if err != nil {
			t.Errorf("%s: the first watch is refused: %v", version, err)
			continue
		}
		stream.Close()
	}
}

// E4: an invalid prefix, or one that the API server would shorten, is rejected in one sentence.
func TestNamespacePrefix(t *testing.T) {
	for _, prefix := range []string{"Bad_Name", "", "-a", "a.b", strings.Repeat("a", 58)} {
		name, err := new(Cluster).Namespace(t.Context(), prefix)
		testkit.Equal(t, name, "", prefix)
		testkit.ErrorContains(t, err, fmt.Sprintf("prefix %q", prefix))
	}
	c := sharedCluster(t)
	ctx := testContext(t)
	longest := strings.Repeat("a", 57)
	name, err := c.Namespace(ctx, longest)
	testkit.NoError(t, err, "the longest prefix")
	testkit.HasPrefix(t, name, longest+"-")
}

// E4: the error names an invalid CRD file and its problem, and nothing is left running.
func TestInvalidCRDs(t *testing.T) {
	c := sharedCluster(t)
	ctx := testContext(t)
	taken := filepath.Join(t.TempDir(), "taken.yaml")
	text, err := os.ReadFile("testdata/fuses.yaml")
	testkit.NoError(t, err)
	// Another resource of the same group with the kind of the lamps.
	other := strings.NewReplacer("fuses", "bulbs", "fuse", "bulb", "kind: Fuse", "kind: Lamp", "FuseList", "BulbList").Replace(string(text))
	testkit.NoError(t, os.WriteFile(taken, []byte(other), 0o600))
	for path, want := range map[string][]string{
		"testdata/invalid.yaml": {"testdata/invalid.yaml, document 1", "CustomResourceDefinition wrong", "metadata.name"},
		"testdata/roles.yaml":   {"testdata/roles.yaml, document 1", "is a ClusterRole, not a CustomResourceDefinition"},
		"testdata/missing.yaml": {"testdata/missing.yaml", "no such file"},
		taken:                   {taken, "bulbs.envtest.setpoint.dev", "its names are taken", "Lamp"},
	} {
		err := c.InstallCRDs(ctx, path)
		for _, part := range want {
			testkit.ErrorContains(t, err, part, path)
		}
	}
}

// E3: the garbage collector discovers a CRD that was installed after the start within seconds, not
// at its default second discovery, 30 s after the start.
func TestE3_OwnedByNewTypeIsCollected(t *testing.T) {
	c := sharedCluster(t)
	ctx := testContext(t)
	testkit.NoError(t, c.InstallCRDs(ctx, "testdata/fuses.yaml"))
	namespace, err := c.Namespace(ctx, "collected")
	testkit.NoError(t, err)
	owners := c.dynamic.Resource(fuses).Namespace(namespace)
	owner := create(ctx, t, owners, object("envtest.setpoint.dev/v1", "Fuse", "main"))
	owned := object("v1", "ConfigMap", "owned")
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}})
	r := c.dynamic.Resource(configMaps).Namespace(namespace)
	owned = create(ctx, t, r, owned)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	testkit.NoError(t, owners.Delete(ctx, "main", metav1.DeleteOptions{}))
	waitGone(ctx, t, r, "owned", owned.GetResourceVersion())
}

// E3: a namespace is deleted with its contents, including objects of a new type.
func TestNamespaceDies(t *testing.T) {
	c := sharedCluster(t)
	ctx := testContext(t)
	name, err := c.Namespace(ctx, "dying")
	testkit.NoError(t, err)
	create(ctx, t, c.dynamic.Resource(lamps).Namespace(name), object("envtest.setpoint.dev/v1", "Lamp", "desk"))
	r := c.dynamic.Resource(namespaces)
	now, err := r.Get(ctx, name, metav1.GetOptions{})
	testkit.NoError(t, err)
	testkit.NoError(t, r.Delete(ctx, name, metav1.DeleteOptions{}))
	waitGone(ctx, t, r, name, now.GetResourceVersion())
}

func clientFor(t *testing.T, cfg *rest.Config, err error) dynamic.Interface {
	t.Helper()
	testkit.NoError(t, err)
	made, err := newClients(cfg)
	testkit.NoError(t, err)
	t.Cleanup(made.closeConnection)
	return made.dynamic
}

func TestConfigFor(t *testing.T) {
	c := sharedCluster(t)
	ctx := testContext(t)
	testkit.NoError(t, c.Apply(ctx, "testdata/roles.yaml"))
	testkit.Equal(t, testkit.Err(c.dynamic.Resource(configMaps).Namespace("default").Get(ctx, "without-a-namespace", metav1.GetOptions{})), nil, "Apply")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	testkit.NoError(t, c.WriteKubeconfig(path))
	existing, err := Start(ctx, Options{Kubeconfig: path})
	testkit.NoError(t, err)
	defer existing.Stop()
	for how, cluster := range map[string]*Cluster{"certificate": c, "impersonation": existing} {
		cfg, err := cluster.ConfigFor("jane")
		jane := clientFor(t, cfg, err)
		_, err = jane.Resource(configMaps).Namespace("default").List(ctx, metav1.ListOptions{})
		testkit.ErrorSatisfies(t, err, apierrors.IsForbidden, how, "a user without rights")
		testkit.ErrorContains(t, err, `"jane"`, how, "a user without rights")
		cfg, err = cluster.ConfigFor("joe", "readers")
		joe := clientFor(t, cfg, err)
		testkit.Equal(t, testkit.Err(joe.Resource(configMaps).Namespace("default").List(ctx, metav1.ListOptions{})), nil, how, "a reader")
		testkit.ErrorSatisfies(t, joe.Resource(configMaps).Namespace("default").Delete(ctx, "none", metav1.DeleteOptions{}), apierrors.IsForbidden, how, "a reader deletes")
	}
	testkit.NotEqual(t, testkit.Err(c.ConfigFor("")), nil, "a user without a name is nobody")
}

// E1, E2: with an existing cluster, nothing is started, and Stop deletes what Namespace created.
func TestExistingCluster(t *testing.T) {
	c := sharedCluster(t)
	ctx := testContext(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	testkit.NoError(t, c.WriteKubeconfig(path))
	existing, err := Start(ctx, Options{Kubeconfig: path})
	testkit.NoError(t, err)
	name, err := existing.Namespace(ctx, "borrowed")
	testkit.NoError(t, err)
	found, err := c.dynamic.Resource(namespaces).Get(ctx, name, metav1.GetOptions{})
	testkit.NoError(t, err, "it is another cluster")
	testkit.NoError(t, existing.Stop())
	waitGone(ctx, t, c.dynamic.Resource(namespaces), name, found.GetResourceVersion())
}

// E2: two control planes that start at the same time are independent.
func TestE2_ParallelStarts(t *testing.T) {
	needProgram(t)
	ctx := testContext(t)
	var clusters [2]*Cluster
	var errs [2]error
	var wg sync.WaitGroup
	for i := range clusters {
		wg.Go(func() { clusters[i], errs[i] = Start(ctx, Options{}) })
	}
	wg.Wait()
	for i, c := range clusters {
		testkit.NoError(t, errs[i])
		defer func() {
			testkit.Equal(t, c.Stop(), nil)
			testkit.Equal(t, exists(t, c.plane.dir.path), false, "its data is still there")
		}()
	}
	create(ctx, t, clusters[0].dynamic.Resource(configMaps).Namespace("default"), object("v1", "ConfigMap", "mine"))
	_, err := clusters[1].dynamic.Resource(configMaps).Namespace("default").Get(ctx, "mine", metav1.GetOptions{})
	testkit.ErrorSatisfies(t, err, apierrors.IsNotFound, "in the other control plane")
	stranger := clusters[0].Config()
	stranger.Host = clusters[1].Config().Host
	client := clientFor(t, stranger, nil)
	testkit.ErrorContains(t, testkit.Err(client.Resource(configMaps).List(ctx, metav1.ListOptions{})), "certificate", "one control plane accepts the other's certificates")
	// Without controllers, service accounts do not exist, so pods must not need one.
	pod := object("v1", "Pod", "lonely")
	pod.Object["spec"] = map[string]any{"containers": []any{map[string]any{"name": "a", "image": "b"}}}
	create(ctx, t, clusters[0].dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("default"), pod)
}

// Stop closes the connection to a cluster that continues to run.
func TestStopClosesItsConnection(t *testing.T) {
	closed := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	made, err := newClients(&rest.Config{Host: server.URL})
	testkit.NoError(t, err)
	c := &Cluster{clients: made}
	testkit.NoError(t, testkit.Err(c.discovery.ServerVersion()))
	testkit.NoError(t, c.Stop())
	select {
	case <-closed:
	case <-testContext(t).Done():
		t.Error("the connection is still open")
	}
}

func TestKubeconfigIsComplete(t *testing.T) {
	c := sharedCluster(t)
	text, err := c.Kubeconfig()
	testkit.NoError(t, err)
	cfg, err := clientcmd.RESTConfigFromKubeConfig(text)
	client := clientFor(t, cfg, err)
	testkit.Equal(t, testkit.Err(client.Resource(namespaces).Get(testContext(t), "kube-system", metav1.GetOptions{})), nil)
	if cfg := c.Config(); cfg.QPS >= 0 {
		t.Errorf("QPS is %v: the client limits itself", cfg.QPS)
	}
	mine := c.Config()
	mine.Host = "elsewhere"
	testkit.NotEqual(t, c.Config().Host, "elsewhere", "Config does not return a copy")
}

// E4: the caller receives a process's error about an invalid argument.
func TestStartFails(t *testing.T) {
	needProgram(t)
	t.Setenv("TMPDIR", t.TempDir())
	ctx := testContext(t)
	for name, test := range map[string]struct {
		options Options
		want    []string
	}{
		"a flag that there is not": {Options{APIServerArgs: []string{"--no-such-flag"}}, []string{"kube-apiserver", "Options.APIServerArgs", "no-such-flag"}},
		"a value that is wrong":    {Options{APIServerArgs: []string{"--service-cluster-ip-range=nonsense"}}, []string{"kube-apiserver", "service-cluster-ip-range[0] is not a valid cidr"}},
		"no such kubeconfig":       {Options{Kubeconfig: "no/such/file"}, []string{"Options.Kubeconfig no/such/file", "no such file"}},
		"both":                     {Options{Kubeconfig: "x", UseKubebuilderAssets: true}, []string{"exclude each other"}},
		"a CRD file that is none":  {Options{CRDs: []string{"main_test.go"}}, []string{"main_test.go", "YAML"}},
		"a CRD that is refused":    {Options{CRDs: []string{"testdata/invalid.yaml"}}, []string{"testdata/invalid.yaml"}},
		"no time":                  {Options{StartTimeout: 1}, []string{"etcd", "did not start within 1ns", "Options.StartTimeout"}},
	} {
		c, err := Start(ctx, test.options)
		if err == nil {
			c.Stop()
		}
		for _, part := range test.want {
			testkit.ErrorContains(t, err, part, name)
		}
	}
	left, _ := filepath.Glob(filepath.Join(runParent(), "*"))
	testkit.Len(t, left, 0, "left behind")
}

func TestOutput(t *testing.T) {
	needProgram(t)
	var out testkit.Buffer
	c, err := Start(testContext(t), Options{Output: &out})
	testkit.NoError(t, err)
	testkit.NoError(t, c.Stop())
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "etcd: ") && !strings.HasPrefix(line, "kube-apiserver: ") {
			t.Errorf("a line does not say whose it is: %q", line)
		}
	}
	testkit.Contains(t, out.String(), "kube-apiserver: ", "nothing from kube-apiserver in")
}
