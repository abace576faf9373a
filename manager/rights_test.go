// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/apipath"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/source"
)

// zones are cluster-scoped, which a program does not know.
var zones = sim.Resource{Group: "example.com", Version: "v1", Kind: "Zone", Name: "zones"}

// policed is an API server with authorization by roles.
type policed struct {
	*sim.Server

	mu      sync.Mutex // guards what follows
	granted []role
	reviews int
	silent  func(*http.Request) (*http.Response, error) // answers reviews, unless nil
}

// role is a Role, a ClusterRole, or a List of them.
type role struct {
	Kind     string              `json:"kind"`
	Metadata metav1.ObjectMeta   `json:"metadata"`
	Rules    []rbacv1.PolicyRule `json:"rules"`
	Items    []role              `json:"items"`
}

func newPoliced(rules ...rbacv1.PolicyRule) *policed {
	api := sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Leases, eventsResource, zones)
	return &policed{Server: api, granted: []role{{Kind: "ClusterRole", Rules: rules}}}
}

func (p *policed) RoundTrip(r *http.Request) (*http.Response, error) {
	of := apipath.Parse(r.Method, r.URL.Path, r.URL.RawQuery)
	switch {
	case of.Resource == "selfsubjectaccessreviews":
		return p.review(r)
	case of.Resource != "" && !p.allows(of):
		if r.Body != nil {
			r.Body.Close()
		}
		return answer(http.StatusForbidden, &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: "no right",
		})
	}
	return p.Server.RoundTrip(r)
}

func (p *policed) review(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.reviews++
	silent := p.silent
	p.mu.Unlock()
	if silent != nil {
		return silent(r)
	}
	sent, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	review := sent.(*authorizationv1.SelfSubjectAccessReview)
	a := review.Spec.ResourceAttributes
	review.Status.Allowed = p.allows(apipath.Target{Verb: a.Verb, Group: a.Group, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name})
	return answer(http.StatusCreated, review)
}

func (p *policed) allows(of apipath.Target) bool {
	resource := strings.TrimSuffix(of.Resource+"/"+of.Subresource, "/")
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.granted, func(r role) bool {
		return (r.Kind == "ClusterRole" || r.Metadata.Namespace == of.Namespace) && slices.ContainsFunc(r.Rules, func(p rbacv1.PolicyRule) bool {
			return has(p.APIGroups, of.Group) && has(p.Resources, resource) && has(p.Verbs, of.Verb) && (len(p.ResourceNames) == 0 || has(p.ResourceNames, of.Name))
		})
	})
}

func has(list []string, one string) bool {
	return slices.Contains(list, one) || slices.Contains(list, "*")
}

// grant grants a role of the log.
func (p *policed) grant(t *testing.T, text string) {
	t.Helper()
	var r role
	testkit.NoError(t, yaml.Unmarshal([]byte(text), &r), fmt.Sprintf("in %s", text))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.granted = append(append(p.granted, r), r.Items...)
}

func (p *policed) reviewed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reviews
}

// entry is a line of the log.
type entry struct {
	Level, Msg, Role, Err, Cluster string
	Missing                        []string
}

// rightsLogged returns the lines about rights.
func rightsLogged(t *testing.T, out *testkit.Buffer) (all []entry) {
	t.Helper()
	for line := range strings.Lines(out.String()) {
		var e entry
		testkit.NoError(t, json.Unmarshal([]byte(line), &e))
		if strings.Contains(e.Msg, "rights") {
			all = append(all, e)
		}
	}
	return all
}

func logTo(out *testkit.Buffer) func(*manager.Options) {
	return func(o *manager.Options) { o.Logger = slog.New(slog.NewJSONHandler(out, nil)) }
}

// copyMaps adds a controller that copies each ConfigMap to a Secret that it owns, and records that.
func copyMaps(m *manager.Manager, d *diary) {
	maps, secrets := cache.For[*corev1.ConfigMap](m.Cache()), cache.ForScope[*corev1.Secret](m.Cache(), cache.Scope{Namespaces: cache.NewSet("default")})
	recorder := events.For(m, events.Options{})
	c := controller.New("copier", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		source, err := maps.Get(ctx, key)
		if err != nil {
			return controller.Result{}, ignoreNotFound(err)
		}
		_, err = client.For[*corev1.Secret](m.Client()).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
		if err == nil {
			d.note("copied %s", key.Name)
			recorder.Eventf(ctx, source, events.Normal, "Copied", "", "copied")
		}
		return controller.Result{}, err
	}), controller.Options{})
	c.Watch(source.Kind(maps, handler.Self()))
	c.Watch(source.Kind(secrets, handler.Owner(maps)))
	m.Add(c)
}

// TestPreflight_PrintsARoleThatMakesItWork: also of a standby, before it can do anything.
func TestPreflight_PrintsARoleThatMakesItWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPoliced()
		put(api.Server, "a")
		var out testkit.Buffer
		var d diary
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			logTo(&out)(o)
			o.RequireTerm = true // reviews have no term
		})
		copyMaps(m, &d)
		stop, result := start(t, m)
		testkit.Pass(5 * time.Minute)
		logged := rightsLogged(t, &out)
		if len(logged) != 1 || logged[0].Level != "WARN" {
			t.Fatalf("the log has %v", logged)
		}
		want := []string{
			"list, watch configmaps (the informer of ConfigMap.v1)",
			"create, patch events.events.k8s.io (the recorder of events)",
			"create leases.coordination.k8s.io in default (the Lease default/operator)",
			"get, update, watch leases.coordination.k8s.io operator in default (the Lease default/operator)",
			"update configmaps/finalizers in default (owner references with blockOwnerDeletion, where the cluster enforces it)",
			"list, watch secrets in default (the informer of Secret.v1)",
		}
		slices.Sort(want)
		testkit.SlicesEqual(t, slices.Sorted(slices.Values(logged[0].Missing)), want)
		d.want(t)
		api.grant(t, logged[0].Role)
		testkit.Pass(5 * time.Minute)
		d.want(t) // the write is declared nowhere
		report := m.Rights(t.Context())
		if len(report.Missing) != 1 || report.Missing[0].String() != "create secrets in default (a request was refused)" {
			t.Errorf("missing is %v", report.Missing)
		}
		api.grant(t, strings.SplitN(report.YAML(), "\n---\n", 2)[0])
		api.grant(t, strings.SplitN(report.YAML(), "\n---\n", 2)[1])
		testkit.Pass(20 * time.Minute)
		d.want(t, "copied a")
		ok(t, m.FlushEvents(t.Context()))
		if report := m.Rights(t.Context()); len(report.Missing) != 0 || report.Error != "" || api.Stored(eventsResource) != 1 {
			t.Errorf("missing is %v, error %q, %d events are stored", report.Missing, report.Error, api.Stored(eventsResource))
		}
		stop()
		ok(t, result())
		testkit.Equal(t, len(rightsLogged(t, &out)), 1, "the log has lines")
	})
}

func all() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
}

func TestPreflight_OfAStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPoliced(all())
		leader := newManager(api.Server, elected)
		leader.AddLeaderOnly("work", (&diary{}).until("work", 0))
		stopLeader, leaderResult := start(t, leader)
		testkit.Pass(time.Minute)
		// It may do all that a standby does.
		api.granted[0].Rules = []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"leases"}, Verbs: []string{"get", "watch"}}}
		var out testkit.Buffer
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			logTo(&out)(o)
		})
		m.AddLeaderOnly("work", (&diary{}).until("work", 0))
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		logged := rightsLogged(t, &out)
		if len(logged) != 1 || logged[0].Role != "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: test-missing, namespace: default}, rules: ["+
			"{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}, {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [operator], verbs: [update]}]}" {
			t.Errorf("the log has %v", logged)
		}
		stop()
		ok(t, result())
		stopLeader()
		ok(t, leaderResult())
	})
}

// TestPreflight_DelaysNothing: whatever the API server does with reviews, the program works, and
// the log has one line.
func TestPreflight_DelaysNothing(t *testing.T) {
	hangs := make(chan struct{})
	for name, test := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		err    string
	}{
		"refused": {func(*http.Request) (*http.Response, error) {
			return answer(http.StatusForbidden, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: "no reviews"})
		}, "SelfSubjectAccessReview: no reviews"},
		"cut": {func(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset") }, "connection reset"},
		"no answer": {func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, "deadline"},
		"a request that does not return": {func(*http.Request) (*http.Response, error) {
			<-hangs
			return nil, errors.New("hung")
		}, "no answer to a request for the reviews of rights"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs = make(chan struct{})
				api := newPoliced(all())
				api.silent = test.answer
				put(api.Server, "a")
				var out testkit.Buffer
				var d diary
				m := newManager(api, logTo(&out))
				copyMaps(m, &d)
				stop, result := start(t, m)
				synctest.Wait()
				d.want(t, "copied a")
				testkit.Pass(time.Minute)
				logged := rightsLogged(t, &out)
				if len(logged) != 1 || logged[0].Level != "INFO" || !strings.Contains(logged[0].Err, test.err) {
					t.Errorf("the log has %v, want %q", logged, test.err)
				}
				stop()
				close(hangs)
				ok(t, result())
			})
		})
	}
}

// TestPreflight_OfARequestThatHangs: the error of Run names it.
func TestPreflight_OfARequestThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, hangs := newPoliced(all()), make(chan struct{})
		api.silent = func(*http.Request) (*http.Response, error) {
			<-hangs
			return nil, errors.New("hung")
		}
		m := newManager(api, nil)
		copyMaps(m, &diary{})
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		stop()
		testkit.ErrorContains(t, result(), "a request for the reviews of rights has not returned", "Run returned")
		close(hangs)
	})
}

// TestRights_WithoutReviews: refused requests count as missing.
func TestRights_WithoutReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPoliced()
		api.silent = func(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset") }
		m := newManager(api, nil)
		cache.For[*corev1.Secret](m.Cache())
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		report := m.Rights(t.Context())
		if len(report.Missing) != 1 || report.Missing[0].String() != "watch secrets (a request was refused)" || !strings.Contains(report.Error, "connection reset") {
			t.Errorf("missing is %v, error %q", report.Missing, report.Error)
		}
		stop()
		ok(t, result())
	})
}

// TestPreflight_EndsWithTheManager: a stop does not wait for a review.
func TestPreflight_EndsWithTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPoliced(all())
		api.silent = func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		var out testkit.Buffer
		m := newManager(api, logTo(&out))
		copyMaps(m, &diary{})
		stop, result := start(t, m)
		synctest.Wait()
		began := time.Now()
		stop()
		ok(t, result())
		testkit.Equal(t, time.Since(began), 0)
		testkit.Len(t, rightsLogged(t, &out), 0)
	})
}

func TestRights_OfDeclarations(t *testing.T) {
	absent := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Absent"}
	for name, test := range map[string]struct {
		options func(*manager.Options)
		add     func(*manager.Manager)
		want    []string
	}{
		"nothing": {},
		"namespaces": {
			func(o *manager.Options) { o.Cache.Namespaces = cache.NewSet("shop", "bank") },
			func(m *manager.Manager) {
				cache.For[*corev1.Secret](m.Cache())
				events.For(m, events.Options{})
			},
			[]string{"create, patch events.events.k8s.io in bank", "list, watch secrets in bank", "create, patch events.events.k8s.io in shop", "list, watch secrets in shop"},
		},
		"a name": {nil, func(m *manager.Manager) {
			cache.ForScope[*corev1.Secret](m.Cache(), cache.Scope{Names: cache.NewSet(types.NamespacedName{Namespace: "shop", Name: "a"})})
		}, []string{"list, watch secrets a in shop"}},
		"metadata": {nil, func(m *manager.Manager) {
			cache.ForScope[*metav1.PartialObjectMetadata](m.Cache(), cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("Secret")})
		}, []string{"list, watch secrets"}},
		"a cluster-scoped kind": {
			func(o *manager.Options) { o.Cache.Namespaces = cache.NewSet("shop", "bank") },
			func(m *manager.Manager) {
				cache.ForScope[*unstructured.Unstructured](m.Cache(), cache.Scope{Kind: schema.GroupVersionKind{Group: zones.Group, Version: "v1", Kind: zones.Kind}})
			},
			[]string{"list, watch zones.example.com"},
		},
		"owners of a cluster": {nil, func(m *manager.Manager) {
			maps, secrets := cache.For[*corev1.ConfigMap](m.Cache()), cache.ForScope[*corev1.Secret](m.Cache(), cache.Scope{Namespaces: cache.NewSet("shop")})
			c := controller.New("c", controller.Func[handler.ClusterKey](nil), controller.Options{})
			c.Watch(source.Kind(secrets, handler.InCluster("", handler.Owner(maps))))
			m.Add(c)
		}, []string{"list, watch configmaps", "update configmaps/finalizers in shop", "list, watch secrets in shop"}},
		"owners that do not control": {nil, func(m *manager.Manager) {
			maps := cache.For[*corev1.ConfigMap](m.Cache())
			c := controller.New("c", controller.Func[types.NamespacedName](nil), controller.Options{})
			c.Watch(source.Kind(maps, handler.AnyOwner(maps)))
			m.Add(c)
		}, []string{"list, watch configmaps"}},
		"a recorder of another client": {nil, func(m *manager.Manager) { m.AddRecorder(events.New(m.Client(), events.Options{Name: "x"})) }, nil},
		"a Lease elsewhere": {func(o *manager.Options) {
			o.LeaderElection = &leaderelection.Options{Lease: "operator", Namespace: "default", Config: at("http://leases.test", newPoliced())}
		}, nil, []string{
			"create leases.coordination.k8s.io in default of the cluster http://leases.test",
			"get, update, watch leases.coordination.k8s.io operator in default of the cluster http://leases.test",
		}},
		"a kind that is not served": {nil, func(m *manager.Manager) {
			cache.ForScope[*unstructured.Unstructured](m.Cache(), cache.Scope{Kind: absent})
		}, nil},
		"a server that authorizes": {nil, func(m *manager.Manager) {
			addServer(m, serverOptions{}).Authorize(http.NotFoundHandler())
		}, []string{"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io"}},
		"a server that does not": {nil, func(m *manager.Manager) { addServer(m, serverOptions{}) }, nil},
		"a shard group": {func(o *manager.Options) {
			o.LeaderElection = &shard.Options{Election: leaderelection.Options{Lease: "operator", Namespace: "default"}}
		}, nil, []string{
			"create, delete, get, list, update, watch leases.coordination.k8s.io in default", "create, patch events.events.k8s.io in default",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newManager(newPoliced(), test.options)
				if test.add != nil {
					test.add(m)
				}
				report := m.Rights(t.Context())
				var got []string
				for _, r := range report.Needed {
					r.Why = ""
					got = append(got, r.String())
				}
				slices.Sort(got)
				slices.Sort(test.want)
				testkit.SlicesEqual(t, got, test.want)
				testkit.Equal(t, report.Error, "")
				testkit.Len(t, report.Missing, len(report.Needed))
			})
		})
	}
}

// TestRights_OfClusters: each API server reviews what is needed there.
func TestRights_OfClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, west := newPoliced(all()), newPoliced()
		var out testkit.Buffer
		m := newManager(api, logTo(&out))
		cluster := m.AddCluster("west", at("http://west.test", west))
		c := both(m, cluster, &diary{}, controller.Options{})
		c.Watch(source.Kind(cache.For[*corev1.Secret](cluster.Cache()), handler.InCluster("west", handler.Owner(cache.For[*corev1.ConfigMap](cluster.Cache())))))
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		logged := rightsLogged(t, &out)
		if len(logged) != 1 || logged[0].Cluster != "west" || len(logged[0].Missing) != 3 || !strings.HasPrefix(logged[0].Missing[1], "update configmaps/finalizers of the cluster west") ||
			!strings.HasPrefix(logged[0].Missing[0], "list, watch configmaps of the cluster west") {
			t.Errorf("the log has %v", logged)
		}
		if report := m.Rights(t.Context()); len(report.Needed) != 5 || len(report.Missing) != 3 {
			t.Errorf("needed is %v, missing %v", report.Needed, report.Missing)
		}
		stop()
		ok(t, result())
	})
}

// TestRights_AreAsOfNow: of what is added later, and until it is granted.
func TestRights_AreAsOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPoliced()
		m := newManager(api, nil)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		missing := func() int { return len(m.Rights(t.Context()).Missing) }
		before := missing()
		copyMaps(m, &diary{})
		testkit.Pass(time.Minute)
		later := missing()
		api.mu.Lock()
		api.granted[0].Rules = append(api.granted[0].Rules, all())
		api.mu.Unlock()
		testkit.Equal(t, before, 0)
		testkit.NotEqual(t, later, 0)
		testkit.Equal(t, missing(), 0)
		stop()
		ok(t, result())
	})
}

func TestRights_ReviewsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPoliced()
		m := newManager(api, nil)
		var names []types.NamespacedName
		for n := range 3000 {
			names = append(names, types.NamespacedName{Namespace: "default", Name: "a" + strings.Repeat("b", n%50) + string(rune('a'+n%26)) + strings.Repeat("c", n/50)})
		}
		cache.ForScope[*corev1.Secret](m.Cache(), cache.Scope{Names: cache.NewSet(names...)})
		report := m.Rights(t.Context())
		testkit.Equal(t, api.reviewed(), 2000)
		testkit.Contains(t, report.Error, "only the first 2000")
	})
}
