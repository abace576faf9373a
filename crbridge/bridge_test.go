// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// newManager returns a manager on a simulated API server, which has the ConfigMaps a and b.
func newManager(t *testing.T, o crbridge.Options) crbridge.Manager {
	t.Helper()
	s := sim.New(t, scheme.Scheme)
	o.Scheme, o.Metrics = scheme.Scheme, server.Options{BindAddress: "0"}
	if o.Logger.GetSink() == nil {
		o.Logger = testr.New(t)
	}
	mgr, err := crbridge.NewManager(s.Config(), o)
	testkit.NoError(t, err)
	admin, err := client.New(s.Config(), client.Options{Scheme: scheme.Scheme})
	testkit.NoError(t, err)
	for _, name := range []string{"a", "b"} {
		err := admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		testkit.NoError(t, err)
	}
	return mgr
}

// start runs the manager. stop ends it, and returns the result of Start.
func start(t *testing.T, mgr crbridge.Manager) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case <-mgr.Elected():
	case err := <-ended:
		t.Fatal(err)
	}
	return func() error {
		cancel()
		return <-ended
	}
}

func started(t *testing.T, o crbridge.Options) crbridge.Manager {
	t.Helper()
	mgr := newManager(t, o)
	stop := start(t, mgr)
	t.Cleanup(func() {
		testkit.Equal(t, stop(), nil)
	})
	return mgr
}

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

func TestRead_BeforeStartIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mgr := newManager(t, crbridge.Options{})
		var not *cache.ErrCacheNotStarted
		if err := mgr.GetClient().Get(t.Context(), keyOf("a"), &corev1.ConfigMap{}); !errors.As(err, &not) {
			t.Errorf("Get: %v", err)
		}
		if err := mgr.GetClient().List(t.Context(), &corev1.ConfigMapList{}); !errors.As(err, &not) {
			t.Errorf("List: %v", err)
		}
		testkit.Equal(t, mgr.GetAPIReader().Get(t.Context(), keyOf("a"), &corev1.ConfigMap{}), nil)
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		testkit.Equal(t, mgr.GetCache().WaitForCacheSync(ended), false, "WaitForCacheSync reports a synced cache before Start")
		testkit.Equal(t, start(t, mgr)(), nil)
	})
}

func TestRead_FailsOnMissingInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mgr := started(t, crbridge.Options{Cache: cache.Options{ReaderFailOnMissingInformer: true}})
		var missing *cache.ErrResourceNotCached
		for range 2 { // the first one must not declare the kind
			if err := mgr.GetClient().List(t.Context(), &corev1.ConfigMapList{}); !errors.As(err, &missing) {
				t.Fatalf("List: %v", err)
			}
			if err := mgr.GetClient().Get(t.Context(), keyOf("a"), &corev1.ConfigMap{}); !errors.As(err, &missing) {
				t.Fatalf("Get: %v", err)
			}
		}
		testkit.NoError(t, testkit.Err(mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})))
		testkit.Equal(t, mgr.GetClient().Get(t.Context(), keyOf("a"), &corev1.ConfigMap{}), nil, "Get with an informer")
	})
}

func TestCache_DefaultFieldSelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mgr := started(t, crbridge.Options{Cache: cache.Options{DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", "b")}})
		var list corev1.ConfigMapList
		testkit.NoError(t, mgr.GetClient().List(t.Context(), &list))
		if len(list.Items) != 1 || list.Items[0].Name != "b" {
			t.Errorf("the cache has %d objects, not only b", len(list.Items))
		}
	})
}

func TestCache_OptionsOfNamespaces(t *testing.T) {
	only := cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", "b")}
	for name, test := range map[string]struct {
		namespaces map[string]cache.Config
		want       int // objects, or -1 for an error
	}{
		"none":          {map[string]cache.Config{"default": {}}, 2},
		"one namespace": {map[string]cache.Config{"default": only}, 1},
		"all":           {map[string]cache.Config{cache.AllNamespaces: only}, 1},
		"equal":         {map[string]cache.Config{"default": only, "other": only}, 1},
		"unequal":       {map[string]cache.Config{"default": only, "other": {}}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := crbridge.Options{Scheme: scheme.Scheme, Cache: cache.Options{
					ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Namespaces: test.namespaces}},
				}}
				if test.want < 0 {
					testkit.NotEqual(t, testkit.Err(crbridge.NewManager(&rest.Config{}, o)), nil, "NewManager returned no error")
					return
				}
				mgr := started(t, o)
				var list corev1.ConfigMapList
				testkit.NoError(t, mgr.GetClient().List(t.Context(), &list))
				testkit.Equal(t, len(list.Items), test.want, "the cache has objects")
			})
		})
	}
}

func TestRead_WithAnEndedContextIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mgr := started(t, crbridge.Options{})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := mgr.GetCache().Get(ended, keyOf("a"), &corev1.ConfigMap{}); !apierrors.IsTimeout(err) || !errors.Is(err, context.Canceled) {
			t.Errorf("Get: %v", err)
		}
		testkit.ErrorSatisfies(t, mgr.GetCache().List(ended, &corev1.SecretList{}), apierrors.IsTimeout)
		testkit.ErrorSatisfies(t, testkit.Err(mgr.GetCache().GetInformer(ended, &corev1.Pod{})), apierrors.IsTimeout)
	})
}

func TestInformer_IsStoppedAfterRemoveInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mgr := started(t, crbridge.Options{})
		informer, err := mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
		testkit.NoError(t, err)
		testkit.Equal(t, informer.IsStopped(), false, "a new informer is stopped")
		testkit.NoError(t, mgr.GetCache().RemoveInformer(t.Context(), &corev1.ConfigMap{}))
		testkit.Equal(t, informer.IsStopped(), true, "a removed informer is not stopped")
		testkit.Equal(t, mgr.GetCache().Get(t.Context(), keyOf("a"), &corev1.ConfigMap{}), nil, "Get, which begins a new informer")
	})
}

// TestRead_WaitsForAnAPIServerThatStarts: the first list of a kind is refused for a while, as for a
// new CRD.
func TestRead_WaitsForAnAPIServerThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.NewServer(sim.ConfigMaps, sim.Leases)
		server.Put(sim.ConfigMaps, configMap("a"))
		mgr := managerOn(t, server.Config(), crbridge.Options{}, crbridge.Settings{})
		defer ended(t, start(t, mgr))
		refusal := server.Add(fault.Rule{Match: fault.Match{Resources: []string{"configmaps"}}, Refuse: apierrors.NewTooManyRequests("storage is (re)initializing", 1)})
		time.AfterFunc(5*time.Second, func() { refusal.Remove() })
		var list corev1.ConfigMapList
		err := errors.Join(mgr.GetClient().Get(t.Context(), keyOf("a"), &corev1.ConfigMap{}), mgr.GetClient().List(t.Context(), &list))
		testkit.Equal(t, err, nil)
		testkit.Equal(t, len(list.Items), 1)
	})
}

func TestRead_OfAMissingKindIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mgr := started(t, crbridge.Options{})
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Missing"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := mgr.GetClient().Get(ctx, keyOf("a"), u)
		testkit.ErrorSatisfies(t, err, meta.IsNoMatchError, "Get")
		testkit.Equal(t, ctx.Err(), nil, "Get")
	})
}

func TestStop_GracefulShutdownTimeout(t *testing.T) {
	for timeout, long := range map[time.Duration]bool{0: false, -1: true} {
		synctest.Test(t, func(t *testing.T) {
			mgr := newManager(t, crbridge.Options{GracefulShutdownTimeout: &timeout})
			err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Hour)
				return nil
			}))
			testkit.NoError(t, err)
			stop := start(t, mgr)
			synctest.Wait()
			began := time.Now()
			err = stop()
			if waited := time.Since(began); long != (err == nil) || long != (waited >= time.Hour) || !long && waited > 5*time.Second {
				t.Errorf("with the timeout %d, Start waited for %v and returned %v", timeout, waited, err)
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

func TestAdd_AfterTheStopIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mgr := newManager(t, crbridge.Options{})
		noop := manager.RunnableFunc(func(context.Context) error { return nil })
		late := make(chan error, 1)
		err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			<-ctx.Done()
			late <- mgr.Add(noop)
			return nil
		}))
		testkit.NoError(t, err)
		stop := start(t, mgr)
		testkit.Equal(t, mgr.Add(noop), nil, "Add during Start")
		testkit.Equal(t, stop(), nil)
		testkit.NotEqual(t, <-late, nil, "Add during the stop returned nil")
	})
}

// sink counts how often package logr initializes it. Zap's sink skips one more caller each time.
type sink struct {
	logr.LogSink
	inits *atomic.Int32
}

func (s sink) Init(logr.RuntimeInfo) { s.inits.Add(1) }

func TestLogger_IsInitializedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inits := &atomic.Int32{}
		mgr := newManager(t, crbridge.Options{Logger: logr.New(sink{testr.New(t).GetSink(), inits})})
		err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			return mgr.GetAPIReader().List(ctx, &corev1.ConfigMapList{})
		}))
		testkit.NoError(t, err)
		testkit.Equal(t, start(t, mgr)(), nil)
		testkit.Equal(t, inits.Load(), 1, "the sink was initialized")
	})
}

// TestLogger_ErrorsHaveTheirKey: a query of logs by error finds the errors of both.
func TestLogger_ErrorsHaveTheirKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testkit.Buffer
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, configMap("a"))
		mgr, err := crbridge.New(api.Config(), crbridge.Options{
			Metrics: server.Options{BindAddress: "0"},
			Logger:  funcr.NewJSON(func(line string) { fmt.Fprintln(&lines, line) }, funcr.Options{}),
		}, crbridge.Settings{})
		testkit.NoError(t, err)
		failed := make(chan struct{})
		err = crbridge.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(func(context.Context, crbridge.Request) (crbridge.Result, error) {
			close(failed)
			return crbridge.Result{}, reconcile.TerminalError(errors.New("no quota"))
		}))
		testkit.NoError(t, err)
		stop := start(t, mgr)
		<-failed
		synctest.Wait()
		ended(t, stop)
		if text := lines.String(); !strings.Contains(text, `"error":"terminal error: no quota"`) || strings.Contains(text, `"err":"terminal`) {
			t.Errorf("the log has\n%s", text)
		}
	})
}
