// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	v1beta1 "github.com/setpoint-dev/setpoint/examples/memcached/api/v1beta1"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scenarios hold on the simulated and on the real API server.
var scenarios = map[string]func(*world, *testing.T){
	"creates all children":                         (*world).createsAll,
	"leaves the replicas to an autoscaler":         (*world).leavesReplicas,
	"prunes what is disabled":                      (*world).prunes,
	"neither changes nor deletes foreign objects":  (*world).leavesForeign,
	"replaces the Pods when a Secret changes":      (*world).followsSecrets,
	"is Ready when all servers are":                (*world).becomesReady,
	"applies a ServiceMonitor once it is possible": (*world).monitorsLater,
}

// TestMemcached_Simulated runs each scenario with a server of its own, in virtual time.
func TestMemcached_Simulated(t *testing.T) {
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := simulated(t).Config()
				scenario(start(t, cfg, cfg), t)
			})
		})
	}
}

func simulated(t *testing.T) *sim.Server {
	t.Helper()
	s := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(scheme.AddToScheme, v1beta1.AddToScheme)
	if err := builder.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return sim.New(t, s)
}

// TestStatus_KeepsServersThatRun refuses a change of the Deployment. Clients use the list of
// servers, so it must stay.
func TestStatus_KeepsServersThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := simulated(t)
		w := start(t, server.Config(), server.Config())
		w.becomesReady(t)
		server.Add(fault.Rule{
			Match:  fault.Match{Verbs: []string{"patch", "apply"}, Resources: []string{"deployments"}},
			Refuse: apierrors.NewForbidden(appsv1.Resource("deployments"), w.key.Name, errors.New("quota")),
		})
		w.change(t, func(s *v1beta1.MemcachedSpec) { s.Image = "memcached:1.6.34" })
		mc := w.await(t, status.True(v1beta1.ConditionDegraded), status.True(v1beta1.ConditionReady))
		if len(mc.Status.ServerList) != 1 || mc.Status.ReadyReplicas != 2 {
			t.Errorf("the status is %+v, want the servers that run", mc.Status)
		}
	})
}

const user = "system:serviceaccount:memcached-system:memcached-operator"

// binding gives the operator's user the generated roles.
const binding = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: memcached-operator},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: memcached-operator},
 subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "` + user + `"}]}
`

// TestMemcached_RealAPIServer runs the scenarios with the permissions of config/rbac. There are no
// controllers of Kubernetes: the test plays the autoscaler and writes the status of Deployments.
func TestMemcached_RealAPIServer(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{
		CRDs: []string{"config/crd"},
		// As strict as a cluster may be: a blocking owner reference requires a permission.
		APIServerArgs: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	const namespace = `{apiVersion: v1, kind: Namespace, metadata: {name: memcached-system}}`
	for _, err := range []error{
		cluster.ApplyYAML(t.Context(), []byte(namespace)),
		cluster.Apply(t.Context(), "config/rbac"),
		cluster.ApplyYAML(t.Context(), []byte(binding)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	account, err := cluster.ConfigFor(user)
	if err != nil {
		t.Fatal(err)
	}
	// The other scenarios need a cluster without the kind.
	const last = "applies a ServiceMonitor once it is possible"
	for name, scenario := range scenarios {
		run := func(t *testing.T) {
			w := start(t, account, cluster.Config())
			if w.key.Namespace, err = cluster.Namespace(t.Context(), "memcached"); err != nil {
				t.Fatal(err)
			}
			scenario(w, t)
		}
		if name != last {
			t.Run(name, run)
		} else {
			defer t.Run(name, run)
		}
	}
}

func (w *world) createsAll(t *testing.T) {
	w.create(t, everything())
	w.idle(t)
	want := []string{"Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy"}
	if got := w.kinds(t); !slices.Equal(got, want) {
		t.Errorf("the children are %v, want %v", got, want)
	}
	mc := w.await(t, status.True(v1beta1.ConditionProgressing))
	if ref := metav1.GetControllerOf(must[*appsv1.Deployment](t, w)); ref == nil || ref.UID != mc.UID {
		t.Errorf("the Deployment's owner is %v", ref)
	}
	if hpa := must[*autoscalingv2.HorizontalPodAutoscaler](t, w); hpa.Spec.MaxReplicas != 6 ||
		*hpa.Spec.Behavior.ScaleDown.StabilizationWindowSeconds != 300 || hpa.Spec.ScaleTargetRef.Name != w.key.Name {
		t.Errorf("the autoscaler is %+v", hpa.Spec)
	}
	if pdb := must[*policyv1.PodDisruptionBudget](t, w); *pdb.Spec.MinAvailable != intstr.FromInt32(1) {
		t.Errorf("the budget is %+v", pdb.Spec)
	}
	if svc := must[*corev1.Service](t, w); svc.Spec.ClusterIP != corev1.ClusterIPNone || len(svc.Spec.Ports) != 2 {
		t.Errorf("the Service is %+v", svc.Spec)
	}
}

func (w *world) leavesReplicas(t *testing.T) {
	w.create(t, everything())
	w.idle(t)
	// As the autoscaler does:
	update(t, w, func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(5)) })
	w.idle(t)
	w.change(t, func(s *v1beta1.MemcachedSpec) { s.Image = "memcached:1.6.34" })
	w.idle(t)
	d := must[*appsv1.Deployment](t, w)
	if got := d.Spec.Template.Spec.Containers[0].Image; *d.Spec.Replicas != 5 || got != "memcached:1.6.34" {
		t.Errorf("%d replicas of %s, want 5 of the new image", *d.Spec.Replicas, got)
	}
	w.change(t, func(s *v1beta1.MemcachedSpec) { s.Autoscaling.Enabled, s.Replicas = false, new(int32(3)) })
	w.idle(t)
	update(t, w, func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(7)) })
	w.idle(t)
	if d := must[*appsv1.Deployment](t, w); *d.Spec.Replicas != 3 {
		t.Errorf("without the autoscaler there are %d replicas, want 3", *d.Spec.Replicas)
	}
}

func (w *world) prunes(t *testing.T) {
	w.create(t, everything())
	w.idle(t)
	w.change(t, func(s *v1beta1.MemcachedSpec) {
		s.HighAvailability.PodDisruptionBudget.Enabled = false
		s.Autoscaling.Enabled = false
		s.Security.NetworkPolicy.Enabled = false
	})
	w.idle(t)
	if got, want := w.kinds(t), []string{"Deployment", "Service"}; !slices.Equal(got, want) {
		t.Errorf("the children are %v, want %v", got, want)
	}
}

func (w *world) leavesForeign(t *testing.T) {
	foreign := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: w.key.Name}}
	foreign, err := client.For[*policyv1.PodDisruptionBudget](w.admin).Create(t.Context(), foreign)
	if err != nil {
		t.Fatal(err)
	}
	w.create(t, everything())
	mc := w.await(t, status.True(v1beta1.ConditionDegraded))
	c := meta.FindStatusCondition(mc.Status.Conditions, v1beta1.ConditionDegraded)
	if c.Reason != "ApplyFailed" || !strings.Contains(c.Message, "PodDisruptionBudget") || !strings.Contains(c.Message, "has no controlling owner") {
		t.Errorf("the condition is %+v", c)
	}
	if got := w.kinds(t); len(got) != 5 {
		t.Errorf("beside the failure there are only %v", got)
	}
	w.change(t, func(s *v1beta1.MemcachedSpec) { s.HighAvailability.PodDisruptionBudget.Enabled = false })
	w.idle(t)
	if got := must[*policyv1.PodDisruptionBudget](t, w); got.UID != foreign.UID || got.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the foreign object was changed: %+v", got)
	}
}

func (w *world) followsSecrets(t *testing.T) {
	spec := v1beta1.MemcachedSpec{}
	spec.Security.SASL = v1beta1.SASLSpec{Enabled: true, CredentialsSecretRef: corev1.LocalObjectReference{Name: w.key.Name}}
	w.create(t, spec)
	w.idle(t)
	mc := w.await(t, status.True(v1beta1.ConditionDegraded))
	if c := meta.FindStatusCondition(mc.Status.Conditions, v1beta1.ConditionDegraded); c.Reason != "SecretNotFound" {
		t.Errorf("the condition is %+v", c)
	}
	hashes := map[string]bool{must[*appsv1.Deployment](t, w).Spec.Template.Annotations[hashAnnotation]: true}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: w.key.Name}, StringData: map[string]string{"password-file": "a"},
	}
	if _, err := client.For[*corev1.Secret](w.admin).Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.idle(t)
	hashes[must[*appsv1.Deployment](t, w).Spec.Template.Annotations[hashAnnotation]] = true
	update(t, w, func(s *corev1.Secret) { s.Data["password-file"] = []byte("b") })
	w.idle(t)
	hashes[must[*appsv1.Deployment](t, w).Spec.Template.Annotations[hashAnnotation]] = true
	if len(hashes) != 3 || !hashes[""] {
		t.Errorf("the hashes are %v, want none and two others", hashes)
	}
}

func (w *world) becomesReady(t *testing.T) {
	w.create(t, v1beta1.MemcachedSpec{Replicas: new(int32(2))})
	w.idle(t)
	d := must[*appsv1.Deployment](t, w)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	if _, err := client.For[*appsv1.Deployment](w.admin).UpdateStatus(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	mc := w.await(t, status.True(v1beta1.ConditionReady), status.True(v1beta1.ConditionAvailable),
		status.False(v1beta1.ConditionProgressing), status.False(v1beta1.ConditionDegraded))
	if want := w.key.Name + "." + w.key.Namespace + ":11211"; !slices.Equal(mc.Status.ServerList, []string{want}) || mc.Status.ReadyReplicas != 2 {
		t.Errorf("the status is %+v, want the server %s", mc.Status, want)
	}
}

// monitorsLater installs the CRD while the operator runs. The other children do not wait for it.
func (w *world) monitorsLater(t *testing.T) {
	w.create(t, everything())
	w.idle(t)
	if _, err := w.monitor(t); !meta.IsNoMatchError(err) || len(w.kinds(t)) != 5 {
		t.Fatalf("before: %v, and the children %v", err, w.kinds(t))
	}
	w.installMonitors(t)
	// A second cache waits for the object: the operator's may not list the kind yet.
	mgr := manager.New(w.config, manager.Options{Name: "witness", Logger: slog.New(slog.DiscardHandler)})
	monitors := cache.ForScope[*unstructured.Unstructured](mgr.Cache(), cache.Scope{Kind: serviceMonitorKind})
	found := make(chan *unstructured.Unstructured, 1)
	if _, err := monitors.Subscribe(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if u := obj.(*unstructured.Unstructured); u.GetNamespace() == w.key.Namespace {
				found <- u
			}
		},
	}); err != nil {
		t.Fatal(err)
	}
	runManager(t, mgr)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	select {
	case u := <-found:
		if u.GetName() != w.key.Name || metav1.GetControllerOf(u) == nil {
			t.Errorf("after: %v", u)
		}
	case <-ctx.Done():
		t.Fatal("the ServiceMonitor was not created")
	}
	w.change(t, func(s *v1beta1.MemcachedSpec) { s.Monitoring.ServiceMonitor = nil })
	w.idle(t)
	if _, err := w.monitor(t); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("disabled: %v", err)
	}
}
