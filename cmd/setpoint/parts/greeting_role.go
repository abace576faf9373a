// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// The operator needs the rights that it grants.
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get

// newGreetingRole returns the fields of the Role that the operator decides about.
func newGreetingRole(obj *v1alpha1.Greeting) *rbacac.RoleApplyConfiguration {
	return rbacac.Role(obj.Name, obj.Namespace).
		WithRules(rbacac.PolicyRule().
			WithAPIGroups("").
			WithResources("configmaps").
			WithVerbs("get"))
}

// newGreetingRoleBinding returns the fields of the RoleBinding that the operator decides about. The
// Role has to exist first. The subject is the one of 'setpoint add child ServiceAccount'.
func newGreetingRoleBinding(obj *v1alpha1.Greeting) client.ApplyConfiguration {
	role := newGreetingRole(obj)
	return children.With(rbacac.RoleBinding(obj.Name, obj.Namespace).
		WithRoleRef(rbacac.RoleRef().
			WithAPIGroup(rbacv1.GroupName).
			WithKind("Role").
			WithName(*role.Name)).
		WithSubjects(rbacac.Subject().
			WithKind(rbacv1.ServiceAccountKind).
			WithName(obj.Name).
			WithNamespace(obj.Namespace)),
		children.After(role))
}
