// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// The tests that need a control plane share one. Each has its own namespace and proxy.
var (
	shared = sync.OnceValues(func() (*envtest.Cluster, error) {
		return envtest.Start(context.Background(), envtest.Options{})
	})
	sharedUsed atomic.Bool
)

func stopShared() error {
	if !sharedUsed.Load() {
		return nil
	}
	c, err := shared()
	if err != nil {
		return nil // told already
	}
	return c.Stop()
}

// cluster is a namespace behind a proxy.
type cluster struct {
	*envtest.Cluster
	*Proxy
	namespace string
	direct    kubernetes.Interface
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it needs a control plane")
	}
	sharedUsed.Store(true)
	c, err := shared()
	testkit.NoError(t, err)
	namespace, err := c.Namespace(testContext(t), "fault")
	testkit.NoError(t, err)
	return &cluster{c, proxied(t, c.Config()), namespace, clientset(t, c.Config())}
}

func clientset(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfigAndClient(cfg, ownClient(t, cfg))
	testkit.NoError(t, err)
	return client
}

// through returns a configuration of the admin with this format and protocol.
func (c *cluster) through(t *testing.T, mediaType, protocol string) *rest.Config {
	t.Helper()
	cfg, err := c.Proxy.Config()
	testkit.NoError(t, err)
	if cfg.ContentType = mediaType; mediaType != "" {
		cfg.AcceptContentTypes = mediaType + ",application/json"
	}
	if protocol != "" {
		cfg.NextProtos = []string{protocol}
	}
	return cfg
}

func (c *cluster) create(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	testkit.NoError(t, testkit.Err(client.CoreV1().ConfigMaps(c.namespace).Create(ctx, object, metav1.CreateOptions{})))
}

const protobuf = "application/vnd.kubernetes.protobuf"

// eachFormat runs a test with client-go's formats and protocols.
func eachFormat(t *testing.T, test func(t *testing.T, mediaType, protocol string)) {
	for _, mediaType := range []string{"application/json", protobuf} {
		eachProtocol(t, func(t *testing.T, protocol string) {
			t.Run(mediaType, func(t *testing.T) { test(t, mediaType, protocol) })
		})
	}
}

func TestClientset(t *testing.T) {
	c := newCluster(t)
	eachFormat(t, func(t *testing.T, mediaType, protocol string) {
		ctx := testContext(t)
		cfg := c.through(t, mediaType, protocol)
		seen := c.Add(Rule{Match: Match{Config: cfg}})
		maps := clientset(t, cfg).CoreV1().ConfigMaps(c.namespace)
		watcher, err := maps.Watch(ctx, metav1.ListOptions{})
		testkit.NoError(t, err)
		defer watcher.Stop()
		made, err := maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}, Data: map[string]string{"large": strings.Repeat("x", 500_000)},
		}, metav1.CreateOptions{})
		testkit.NoError(t, err)
		e := <-watcher.ResultChan()
		testkit.Equal(t, e.Type, watch.Added)
		m, _ := e.Object.(*corev1.ConfigMap)
		testkit.Equal(t, m != nil && m.UID == made.UID, true, e.Object)
		list, err := maps.List(ctx, metav1.ListOptions{}) // large enough to be compressed
		if err != nil || len(list.Items) != 1 || list.Items[0].Data["large"] != made.Data["large"] {
			t.Errorf("the list has %v, %v", len(list.Items), err)
		}
		testkit.NoError(t, maps.Delete(ctx, made.Name, metav1.DeleteOptions{}))
		testkit.Equal(t, (<-watcher.ResultChan()).Type, watch.Deleted)
		testkit.ErrorSatisfies(t, testkit.Err(maps.Get(ctx, made.Name, metav1.GetOptions{})), apierrors.IsNotFound)
		watcher.Stop()
		testkit.NoError(t, seen.WaitEnded(ctx, 5))
		var got []string
		for _, r := range c.Requests(Match{Config: cfg}) {
			got = append(got, fmt.Sprintf("%s %s %s %d", r.Verb, r.Resource, r.Name, r.Status))
		}
		want := []string{"watch configmaps  200", "create configmaps  201", "list configmaps  200",
			"delete configmaps " + made.Name + " 200", "get configmaps " + made.Name + " 404"}
		testkit.Equal(t, strings.Join(got, "\n"), strings.Join(want, "\n"))
	})
	testkit.Equal(t, c.Counts()[Kind{Verb: "list", Resource: "configmaps"}], 4, "lists are counted")
}

func TestDynamicClient(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	cfg := c.through(t, "", "")
	client, err := dynamic.NewForConfigAndClient(cfg, ownClient(t, cfg))
	testkit.NoError(t, err)
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	f := c.Add(Rule{Match: Match{Resources: []string{"namespaces"}, Name: c.namespace, Verbs: []string{"patch"}}, Times: 1,
		Refuse: apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, c.namespace, errors.New("somebody was faster"))})
	patch := []byte(`{"metadata": {"labels": {"a": "b"}}}`)
	testkit.ErrorSatisfies(t, testkit.Err(namespaces.Patch(ctx, c.namespace, "application/merge-patch+json", patch, metav1.PatchOptions{})), apierrors.IsConflict)
	var patched *unstructured.Unstructured
	patched, err = namespaces.Patch(ctx, c.namespace, "application/merge-patch+json", patch, metav1.PatchOptions{})
	testkit.NoError(t, err)
	testkit.Equal(t, patched.GetLabels()["a"], "b")
	testkit.Equal(t, f.Hits(), 1)
}

// Typed clients see a 429 as the API server's, whether they read, write or watch.
func TestRefuseClientset(t *testing.T) {
	c := newCluster(t)
	eachFormat(t, func(t *testing.T, mediaType, protocol string) {
		cfg := c.through(t, mediaType, protocol)
		f := c.Add(Rule{Match: Match{Config: cfg}, Refuse: apierrors.NewTooManyRequests("slow down", 7)})
		defer f.Remove()
		client := clientset(t, cfg).CoreV1().RESTClient()
		_, watching := client.Get().Resource("pods").Param("watch", "true").MaxRetries(0).Watch(testContext(t))
		for what, err := range map[string]error{
			"list":   client.Get().Resource("pods").MaxRetries(0).Do(testContext(t)).Error(),
			"create": client.Post().Resource("namespaces").Body(&corev1.Namespace{}).MaxRetries(0).Do(testContext(t)).Error(),
			"watch":  watching,
		} {
			testkit.ErrorSatisfies(t, err, apierrors.IsTooManyRequests, what)
			seconds, ok := apierrors.SuggestsClientDelay(err)
			testkit.Equal(t, fmt.Sprint(seconds, ok), "7 true", what)
		}
		testkit.Equal(t, f.Hits(), 3, "requests were refused")
	})
}

// client-go retries a request that is refused with Retry-After.
func TestRetryAfter(t *testing.T) {
	c := newCluster(t)
	f := c.Add(Rule{Times: 1, Refuse: apierrors.NewTooManyRequests("slow down", 1)})
	testkit.Equal(t, testkit.Err(clientset(t, c.through(t, "", "")).CoreV1().ConfigMaps(c.namespace).List(testContext(t), metav1.ListOptions{})), nil)
	testkit.Equal(t, f.Hits(), 1)
	testkit.Equal(t, c.Counts()[Kind{Verb: "list", Resource: "configmaps"}], 2)
}

// A write whose answer is lost has been executed.
func TestLoseClientset(t *testing.T) {
	c := newCluster(t)
	eachFormat(t, func(t *testing.T, mediaType, protocol string) {
		ctx := testContext(t)
		cfg := c.through(t, mediaType, protocol)
		name := fmt.Sprintf("lost-%d", len(c.Requests(Match{})))
		c.Add(Rule{Match: Match{Config: cfg}, Lose: true, Times: 1})
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		maps := clientset(t, cfg).CoreV1().ConfigMaps(c.namespace)
		_, err := maps.Create(ctx, object, metav1.CreateOptions{})
		testkit.NotEqual(t, err, nil, "the answer arrived")
		testkit.Equal(t, apierrors.ReasonForError(err), "", "the answer arrived")
		testkit.ErrorSatisfies(t, testkit.Err(maps.Create(ctx, object, metav1.CreateOptions{})), apierrors.IsAlreadyExists, "the second create ends with")
	})
}

// watching is an informer for the config maps of the namespace, through the proxy.
type watching struct {
	lister cache.GenericLister
	added  chan string
}

func (c *cluster) informer(t *testing.T, cfg *rest.Config) *watching {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(clientset(t, cfg), 0, informers.WithNamespace(c.namespace))
	generic, err := factory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	testkit.NoError(t, err)
	w := &watching{lister: generic.Lister(), added: make(chan string, 100)}
	testkit.NoError(t, testkit.Err(generic.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { w.added <- o.(*corev1.ConfigMap).Name }})))
	ctx, cancel := context.WithCancel(testContext(t))
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	open := c.Add(Rule{Match: Match{Config: cfg, Verbs: []string{"watch"}}})
	factory.Start(ctx.Done())
	testkit.Equal(t, cache.WaitForCacheSync(ctx.Done(), generic.Informer().HasSynced), true)
	testkit.NoError(t, open.WaitHits(ctx, 1))
	return w
}

func (w *watching) has(name, namespace string) bool {
	_, err := w.lister.ByNamespace(namespace).Get(name)
	return err == nil
}

func (w *watching) next(ctx context.Context, t *testing.T) string {
	t.Helper()
	select {
	case name := <-w.added:
		return name
	case <-ctx.Done():
		t.Fatal("no event arrives")
		return ""
	}
}

// An informer does not see events that its watch has not delivered, although the API server has
// them: neither while the answer is frozen, nor while it is delayed.
func TestInformerIsBehind(t *testing.T) {
	c := newCluster(t)
	eachFormat(t, func(t *testing.T, mediaType, protocol string) {
		ctx := testContext(t)
		cfg := c.through(t, mediaType, protocol)
		informer := c.informer(t, cfg)
		for len(informer.added) > 0 { // of the tests before, and the first ones
			<-informer.added
		}
		name := fmt.Sprintf("late-%d", len(c.Requests(Match{})))
		watch := Match{Config: cfg, Verbs: []string{"watch"}, Resources: []string{"configmaps"}}
		freeze, lag := c.Add(Rule{Match: watch, Freeze: true}), c.Add(Rule{Match: watch, Lag: time.Hour})
		c.create(ctx, t, c.direct, name)
		testkit.NoError(t, freeze.WaitHeld(ctx, 1)) // the event is in the proxy now
		testkit.Equal(t, informer.has(name, c.namespace), false, "the event got through while its watch was frozen")
		freeze.Remove()
		other := clientset(t, c.through(t, mediaType, protocol)) // is not late
		testkit.NoError(t, testkit.Err(other.CoreV1().ConfigMaps(c.namespace).Get(ctx, name, metav1.GetOptions{})))
		testkit.Equal(t, informer.has(name, c.namespace), false)
		lag.Remove()
		for informer.next(ctx, t) != name {
		}
	})
}

// An informer whose watches are cut repeatedly receives everything eventually.
func TestInformerRecovers(t *testing.T) {
	for name, breaks := range map[string]func(ctx context.Context, t *testing.T, c *cluster, m Match){
		"now": func(_ context.Context, t *testing.T, c *cluster, m Match) {
			testkit.Equal(t, c.Cut(m), 1, "watches were cut")
		},
		"in time": func(ctx context.Context, t *testing.T, c *cluster, m Match) {
			f := c.Add(Rule{Match: m, CutAfter: 50 * time.Millisecond})
			defer f.Remove()
			testkit.Equal(t, f.WaitEnded(ctx, 2), nil) // the one that is open, and the next
		},
		"down": func(ctx context.Context, t *testing.T, c *cluster, m Match) {
			ended := c.Add(Rule{Match: m})
			c.Down()
			testkit.Equal(t, c.Up(), nil)
			testkit.Equal(t, ended.WaitHits(ctx, 1), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // client-go takes its time
			c := newCluster(t)
			ctx := testContext(t)
			cfg := c.through(t, "", "")
			informer := c.informer(t, cfg)
			object := "after-" + strings.ReplaceAll(name, " ", "-")
			breaks(ctx, t, c, Match{Config: cfg, Verbs: []string{"watch"}})
			c.create(ctx, t, c.direct, object)
			for informer.next(ctx, t) != object {
			}
		})
	}
}

// Several users of one proxy keep their identities concurrently.
func TestIdentities(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	jane, err := c.ConfigFor("jane", "devs")
	testkit.NoError(t, err)
	joe, err := c.ConfigFor("joe")
	testkit.NoError(t, err)
	asJim := c.Cluster.Config()
	asJim.Impersonate.UserName = "jim"
	account, err := c.direct.CoreV1().ServiceAccounts(c.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	testkit.NoError(t, err)
	token, err := c.direct.CoreV1().ServiceAccounts(c.namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	testkit.NoError(t, err)
	users := map[string]kubernetes.Interface{}
	for name, cfg := range map[string]*rest.Config{"jane": jane, "joe": joe} {
		cfg, err := c.ConfigOf(cfg)
		testkit.NoError(t, err)
		users[name] = clientset(t, cfg)
	}
	cfg, err := c.ConfigOf(asJim)
	testkit.NoError(t, err)
	// ownClient would leave the impersonation out.
	httpClient, err := rest.HTTPClientFor(withoutCache(cfg))
	testkit.NoError(t, err)
	defer httpClient.CloseIdleConnections()
	users["jim"], err = kubernetes.NewForConfigAndClient(cfg, httpClient)
	testkit.NoError(t, err)
	robot := c.through(t, "", "")
	robot.BearerToken = token.Status.Token
	users["system:serviceaccount:"+c.namespace+":robot"] = clientset(t, robot)

	hold := c.Add(Rule{Hold: true})
	var asked sync.WaitGroup
	for want, client := range users {
		asked.Go(func() {
			review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil || review.Status.UserInfo.Username != want {
				t.Errorf("got %v, %v, want %q", review, err, want)
			} else if want == "jane" && !slices.Contains(review.Status.UserInfo.Groups, "devs") {
				t.Errorf("jane's groups are %v", review.Status.UserInfo.Groups)
			}
			_, err = client.CoreV1().Secrets(c.namespace).List(ctx, metav1.ListOptions{})
			testkit.ErrorSatisfies(t, err, apierrors.IsForbidden, fmt.Sprintf("%s lists secrets", want))
			testkit.ErrorContains(t, err, `"`+want+`"`, fmt.Sprintf("%s lists secrets", want))
		})
	}
	testkit.Equal(t, hold.WaitHeld(ctx, len(users)), nil)
	hold.Remove()
	asked.Wait()
}

func withoutCache(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Proxy = http.ProxyFromEnvironment
	return cfg
}
