// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/events"
	v1beta1 "github.com/setpoint-dev/setpoint/examples/memcached/api/v1beta1"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/status"
)

const operatorName = "memcached-operator"

// operator returns the manager. lookAgain is how often it looks for the kind ServiceMonitor.
func operator(cfg *rest.Config, o manager.Options, lookAgain time.Duration) (*manager.Manager, error) {
	o.Name, o.Scheme = operatorName, runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(scheme.AddToScheme, v1beta1.AddToScheme)
	if err := builder.AddToScheme(o.Scheme); err != nil {
		return nil, err
	}
	mgr := manager.New(cfg, o)
	in := mgr.Cache()
	r := &reconciler{
		memcacheds: cache.For[*v1beta1.Memcached](in), secrets: cache.For[*corev1.Secret](in),
		client: mgr.Client(), events: events.For(mgr, events.Options{}), lookAgain: lookAgain,
	}
	c := controller.New("memcached", r, controller.Options{})
	var err error
	r.children, err = children.New(r.memcacheds, r.client,
		children.Of(cache.For[*appsv1.Deployment](in)), children.Of(cache.For[*corev1.Service](in)),
		children.Of(cache.For[*policyv1.PodDisruptionBudget](in)), children.Of(cache.For[*networkingv1.NetworkPolicy](in)),
		children.Of(cache.For[*autoscalingv2.HorizontalPodAutoscaler](in)),
		children.Of(cache.ForScope[*unstructured.Unstructured](in, cache.Scope{Kind: serviceMonitorKind})))
	if err != nil {
		return nil, err
	}
	r.children.Watch(c)
	c.Watch(source.Kind(r.memcacheds, handler.Self(), handler.Or(handler.GenerationChanged, handler.AnnotationsChanged)))
	c.Watch(source.Kind(r.secrets, r.secretUsers(cache.NewIndex(r.memcacheds, "secret", secretNames, "spec"))))
	mgr.Add(c)
	return mgr, nil
}

// The permissions that the operator needs. Some API servers require the one on finalizers to set a
// blocking owner reference.
// +kubebuilder:rbac:groups=memcached.c5c3.io,resources=memcacheds,verbs=list;watch
// +kubebuilder:rbac:groups=memcached.c5c3.io,resources=memcacheds/status,verbs=update
// +kubebuilder:rbac:groups=memcached.c5c3.io,resources=memcacheds/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=autoscaling,resources=horizontalpodautoscalers,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=servicemonitors,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=memcached-system,resources=leases,resourceNames=memcached-operator,verbs=get;update;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=memcached-system,resources=leases,verbs=create

type reconciler struct {
	memcacheds *cache.Handle[*v1beta1.Memcached]
	secrets    *cache.Handle[*corev1.Secret]
	children   *children.Set[*v1beta1.Memcached]
	client     *client.Client
	events     *events.Recorder
	lookAgain  time.Duration
}

// Reconcile applies the children of a Memcached and reports. The garbage collector deletes them.
func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	mc, err := r.memcacheds.Get(ctx, key)
	if err != nil || mc.DeletionTimestamp != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	secrets, missing, err := r.referenced(ctx, mc)
	if err != nil {
		return controller.Result{}, err
	}
	result, err := r.children.Reconcile(ctx, mc, desired(mc, hash(secrets))...)
	if changes := result.Changes(); changes != "" {
		r.events.Eventf(ctx, mc, events.Normal, "Applied", "ApplyChildren", "%s", changes)
	}
	err = errors.Join(err, r.report(ctx, mc, result, missing, err))
	if slices.ContainsFunc(result.Children, func(c children.Child) bool { return c.State == children.Skipped }) {
		return controller.Result{RequeueAfter: r.lookAgain}, err // the CRD may be installed
	}
	return controller.Result{}, err
}

// referenced returns the Secrets that the spec names, by name, and the names of missing ones.
func (r *reconciler) referenced(ctx context.Context, mc *v1beta1.Memcached) (found map[string]*corev1.Secret, missing []string, err error) {
	found = map[string]*corev1.Secret{}
	for _, name := range secretNames(mc) {
		secret, err := r.secrets.Get(ctx, types.NamespacedName{Namespace: mc.Namespace, Name: name})
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil:
			return nil, nil, err
		default:
			found[name] = secret
		}
	}
	return found, missing, nil
}

// hash returns the hash of all data, or "" without data. Its change replaces the Pods.
func hash(secrets map[string]*corev1.Secret) string {
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		for _, key := range slices.Sorted(maps.Keys(secrets[name].Data)) {
			data = fmt.Appendf(data, "%s\x00%s\x00%s", name, key, secrets[name].Data[key])
		}
	}
	if data == nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// secretNames returns the names of the Secrets that a Memcached uses, without repeats.
func secretNames(mc *v1beta1.Memcached) (names []string) {
	if s := mc.Spec.Security.SASL; s.Enabled && s.CredentialsSecretRef.Name != "" {
		names = append(names, s.CredentialsSecretRef.Name)
	}
	if s := mc.Spec.Security.TLS; s.Enabled && s.CertificateSecretRef.Name != "" && !slices.Contains(names, s.CertificateSecretRef.Name) {
		names = append(names, s.CertificateSecretRef.Name)
	}
	return names
}

// secretUsers makes the Memcacheds due that use a Secret.
func (r *reconciler) secretUsers(by *cache.Index[*v1beta1.Memcached]) handler.Handler[types.NamespacedName] {
	return handler.Map(func(ctx context.Context, s *corev1.Secret) (keys []types.NamespacedName, err error) {
		for mc, err := range by.All(ctx, s.Name, cache.ListOptions{Namespace: s.Namespace}) {
			if err != nil {
				return nil, err // the source tries the event again
			}
			keys = append(keys, client.ObjectKeyFromObject(mc))
		}
		return keys, nil
	})
}

// report writes the status. Without a Deployment of its own, a Memcached has no servers.
func (r *reconciler) report(ctx context.Context, mc *v1beta1.Memcached, result children.Result, missing []string, failure error) error {
	deploy, _ := children.Object[*appsv1.Deployment](ctx, result, mc.Name)
	if deploy == nil { // failure has the reason
		deploy = &appsv1.Deployment{}
	}
	now, want := deploy.Status, *cmp.Or(mc.Spec.Replicas, new(int32(1)))
	if mc.Spec.Autoscaling.Enabled {
		want = now.Replicas
	}
	s := status.For(mc, mc.Status.Conditions)
	set := func(condition string, is bool, yes, no, message string, args ...any) {
		if is {
			s.True(condition, yes, fmt.Sprintf(message, args...))
		} else {
			s.False(condition, no, fmt.Sprintf(message, args...))
		}
	}
	ready := want > 0 && now.ReadyReplicas == want
	set(v1beta1.ConditionAvailable, now.ReadyReplicas > 0, "Available", "Unavailable", "%d of %d servers are ready", now.ReadyReplicas, want)
	set(v1beta1.ConditionReady, ready, "MemcachedReady", "MemcachedNotReady", "%d of %d servers are ready", now.ReadyReplicas, want)
	rolling := deploy.UID == "" || now.ObservedGeneration < deploy.Generation || now.UpdatedReplicas < want || now.Replicas != want
	set(v1beta1.ConditionProgressing, rolling, "Progressing", "ProgressingComplete", "%d of %d servers are up to date", now.UpdatedReplicas, want)
	switch {
	case failure != nil:
		s.True(v1beta1.ConditionDegraded, "ApplyFailed", failure.Error())
	case len(missing) > 0:
		s.True(v1beta1.ConditionDegraded, "SecretNotFound", "missing Secrets: "+strings.Join(missing, ", "))
	default:
		set(v1beta1.ConditionDegraded, now.ReadyReplicas < want, "Degraded", "NotDegraded", "%d of %d servers are ready", now.ReadyReplicas, want)
	}
	mc.Status = v1beta1.MemcachedStatus{Conditions: s.Conditions(), ReadyReplicas: now.ReadyReplicas, ObservedGeneration: mc.Generation}
	if ready {
		mc.Status.ServerList = []string{fmt.Sprintf("%s.%s:%d", mc.Name, mc.Namespace, ports(mc)[0].number)}
	}
	_, err := status.Update(ctx, client.For[*v1beta1.Memcached](r.client), s, mc)
	return client.IgnoreNotFound(err)
}
