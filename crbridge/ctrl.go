// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
)

type (
	// Request names the object to reconcile.
	Request = ctrl.Request
	// Result is the result of a Reconcile.
	Result = ctrl.Result
	// Manager is controller-runtime's interface of a manager.
	Manager = ctrl.Manager
	// Options are controller-runtime's options of a manager.
	Options = ctrl.Options
	// SchemeBuilder registers the types of an API group.
	SchemeBuilder = ctrl.SchemeBuilder //nolint:staticcheck // files that move may use it
	// GroupVersion is an API group and its version.
	GroupVersion = schema.GroupVersion
	// GroupResource is an API group and a resource.
	GroupResource = schema.GroupResource
	// TypeMeta has the kind of an object.
	TypeMeta = metav1.TypeMeta
	// ObjectMeta has the metadata of an object.
	ObjectMeta = metav1.ObjectMeta
)

// Functions of controller-runtime.
//
//nolint:gochecknoglobals // controller-runtime's names
var (
	RegisterFlags          = ctrl.RegisterFlags
	GetConfigOrDie         = ctrl.GetConfigOrDie
	GetConfig              = ctrl.GetConfig
	CreateOrPatch          = ctrl.CreateOrPatch
	CreateOrUpdate         = ctrl.CreateOrUpdate
	SetControllerReference = ctrl.SetControllerReference
	SetupSignalHandler     = ctrl.SetupSignalHandler
	Log                    = ctrl.Log
	LoggerFrom             = ctrl.LoggerFrom
	LoggerInto             = ctrl.LoggerInto
	SetLogger              = ctrl.SetLogger
)

// NewWebhookManagedBy is controller-runtime's.
func NewWebhookManagedBy[T runtime.Object](mgr Manager, obj T) *builder.WebhookBuilder[T] {
	return ctrl.NewWebhookManagedBy(mgr, obj)
}
