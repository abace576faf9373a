// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

func node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-of-n"}}
}

func in(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
}

// in makes the desk's recorder one with a namespace.
func (d *desk) in(namespace string) {
	d.options.Namespace = namespace
	d.restart()
}

// TestOptionsNamespace_OfClusterScopedObjects: the events of namespaced objects stay with them.
func TestOptionsNamespace_OfClusterScopedObjects(t *testing.T) {
	for namespace, regarding := range map[string]string{"default": "", "kube-system": "", "ops": "ops"} {
		t.Run(namespace, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d.in(namespace)
				for range 2 { // the second event of a series is a patch
					d.Eventf(d.ctx, node(), events.Normal, "Drained", "Drain", "drained")
					d.Eventf(d.ctx, in("shop"), events.Normal, "Created", "Create", "created")
					testkit.Equal(t, d.Flush(d.ctx), nil)
				}
				d.close()
				d.restart()
				d.Eventf(d.ctx, node(), events.Normal, "Drained", "Drain", "drained")
				d.close()
				want := map[string]corev1.ObjectReference{
					namespace: {APIVersion: "v1", Kind: "Node", Namespace: regarding, Name: "n", UID: "uid-of-n"},
					"shop":    {APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"},
				}
				all := d.list()
				for _, e := range all {
					testkit.Equal(t, e.Regarding, want[e.Namespace], fmt.Sprintf("in %s", e.Namespace))
				}
				testkit.Equal(t, len(all), 2)
				testkit.Equal(t, d.shown(), 5)
				d.wantDropped("", 0)
			})
		})
	}
}

// TestForbidden_OneLineForEachNamespace: it names the namespace. The line about the namespace for
// cluster-scoped objects names the option, too.
func TestForbidden_OneLineForEachNamespace(t *testing.T) {
	for namespace, objects := range map[string][]object.Object{
		"":    {in("shop"), node(), in("shop"), in("blog"), in("ops"), in("default"), node()},
		"ops": {in("shop"), in("ops"), node(), in("shop"), in("blog"), in("default"), node()},
	} {
		t.Run(namespace, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d.in(namespace)
				d.api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Namespace == "blog" {
						return nil, nil
					}
					return r.FailWith(metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden})
				})
				for _, obj := range objects {
					d.Eventf(d.ctx, obj, events.Normal, "Created", "Create", "created")
					testkit.Equal(t, d.Flush(d.ctx), nil)
				}
				own := cmp.Or(namespace, "default")
				d.wantLog(3, "events cannot be written and are dropped; give the operator's role in this namespace the rule "+
					"apiGroups [events.k8s.io], resources [events], verbs [create, patch]")
				for _, of := range []string{"shop", "ops", "default"} {
					d.wantLog(1, "namespace="+of+" ")
				}
				const option = "choose another namespace for events about cluster-scoped objects with events.Options.Namespace"
				d.wantLog(1, option)
				for line := range strings.Lines(d.log.String()) {
					if strings.Contains(line, option) && !strings.Contains(line, "namespace="+own+" ") {
						t.Errorf("the option does not help: %s", line)
					}
				}
				d.wantDropped("forbidden", 6)
				d.api.Intercept(nil)
				if all := d.list(); len(all) != 1 || all[0].Namespace != "blog" {
					t.Errorf("the Events are %+v", all)
				}
			})
		})
	}
}

// TestOptionsNamespace_IsGone: this is a mistake, and logged once. That the namespace of an object
// is gone is not.
func TestOptionsNamespace_IsGone(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.in("ops")
		d.api.Intercept(func(r *sim.Request) (*http.Response, error) {
			return r.FailWith(metav1.Status{
				Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
				Details: &metav1.StatusDetails{Name: r.Namespace, Kind: "namespaces"},
			})
		})
		for _, obj := range []object.Object{in("shop"), node(), node()} {
			d.Eventf(d.ctx, obj, events.Normal, "Created", "Create", "created")
			testkit.Equal(t, d.Flush(d.ctx), nil)
		}
		d.wantLog(1, "level=WARN")
		d.wantLog(1, "events about cluster-scoped objects are dropped, because their namespace is gone or terminating; "+
			"create it, or choose another namespace for events about cluster-scoped objects with events.Options.Namespace")
		d.wantLog(1, "namespace=ops")
		d.wantDropped("the namespace is gone or terminating", 3)
	})
}

// TestOptionsNamespace_Invalid: Run and Flush return an error with the field, its value and the
// mistake.
func TestOptionsNamespace_Invalid(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.in("Ops")
		for _, call := range []func(context.Context) error{d.Run, d.Flush} {
			testkit.HasPrefix(t, fmt.Sprint(call(d.ctx)), `events.Options.Namespace: "Ops" is not the name of a namespace: a lowercase RFC 1123 label`)
		}
	})
}

// rights end at the namespace ops.
const rights = `
apiVersion: v1
kind: Namespace
metadata: {name: ops}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: operator, namespace: ops}
rules:
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: ops}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects:
- {kind: ServiceAccount, name: operator, namespace: ops}
`

// TestServer: the manager of an operator whose rights end at its namespace, on a real API server.
func TestServer(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	testkit.NoError(t, err)
	defer func() {
		testkit.Equal(t, cluster.Stop(), nil)
	}()
	testkit.NoError(t, cluster.ApplyYAML(t.Context(), []byte(rights)))
	allowed(t, cluster.Config())
	cfg, err := cluster.ConfigFor("system:serviceaccount:ops:operator")
	testkit.NoError(t, err)
	for _, c := range []struct {
		name, namespace string
		as              *rest.Config
		want            []string // the namespaces of the events about the Node
		lines           []string // the namespaces of the log lines
	}{
		{name: "the namespace is default", as: cfg, lines: []string{"default", "shop"}},
		{name: "its own namespace", namespace: "ops", as: cfg, want: []string{"ops"}, lines: []string{"shop"}},
		{name: "kube-system", namespace: "kube-system", as: cluster.Config(), want: []string{"kube-system"}},
	} {
		t.Run(c.name, func(t *testing.T) { record(t, c.as, cluster.Config(), c.namespace, c.want, c.lines) })
	}
}

// allowed waits until the API server uses the rights of the operator.
func allowed(t *testing.T, admin *rest.Config) {
	t.Helper()
	c, err := kubernetes.NewForConfig(admin)
	testkit.NoError(t, err)
	for _, verb := range []string{"create", "patch"} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:ops:operator",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "ops", Verb: verb, Group: "events.k8s.io", Resource: "events"},
		}}
		for answer := review; !answer.Status.Allowed; {
			answer, err = c.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
			testkit.NoError(t, err)
		}
	}
}

// record records two events about a Node, and two about a ConfigMap in each of two namespaces.
func record(t *testing.T, as, admin *rest.Config, namespace string, want, lines []string) {
	t.Helper()
	var log bytes.Buffer
	done := make(chan int, 10)
	m := manager.New(as, manager.Options{
		Name: "operator", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Hook: hook.Join(
			hook.On(func(e *hook.EventSent) { done <- e.Events }),
			hook.On(func(e *hook.EventDropped) { done <- e.Events }),
		),
	})
	rec := events.For(m, events.Options{Namespace: namespace})
	of := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + cmp.Or(namespace, "default")}}
	ctx, stop := context.WithCancel(t.Context())
	running := make(chan error, 1)
	go func() { running <- m.Run(ctx) }()
	for range 2 { // the second event of a series is a patch
		objects := []object.Object{of, in("ops"), in("shop")}
		for _, obj := range objects {
			rec.Eventf(ctx, obj, events.Normal, "Created", "Create", "created")
		}
		for n := 0; n < len(objects); {
			n += <-done
		}
	}
	stop()
	testkit.Equal(t, <-running, nil)
	var got []string
	for _, e := range about(t, admin, of) {
		got = append(got, e.Namespace)
		testkit.Equal(t, count(&e), 2, "the Event counts calls")
	}
	testkit.SlicesEqual(t, got, want, "Events about the Node are in")
	var logged []string
	for line := range strings.Lines(log.String()) {
		if _, after, dropped := strings.Cut(line, "are dropped"); dropped {
			_, after, _ = strings.Cut(after, " namespace=")
			logged = append(logged, strings.Fields(after)[0])
		}
	}
	if slices.Sort(logged); !slices.Equal(logged, lines) {
		t.Errorf("the lines are about %v, want %v:\n%s", logged, lines, log.String())
	}
}

// about returns the Events about an object in all namespaces.
func about(t *testing.T, cfg *rest.Config, of object.Object) (found []eventsv1.Event) {
	t.Helper()
	c, err := client.New(cfg, client.Options{})
	testkit.NoError(t, err)
	defer c.Close()
	for e, err := range client.For[*eventsv1.Event](c).ListLive(t.Context(), client.ListOptions{}) {
		testkit.NoError(t, err)
		if e.Regarding.Name == of.GetName() {
			found = append(found, *e)
		}
	}
	return found
}
