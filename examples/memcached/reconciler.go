// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/events"
	v1beta1 "github.com/setpoint-dev/setpoint/examples/memcached/api/v1beta1"
	"github.com/setpoint-dev/setpoint/handler"
)

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
