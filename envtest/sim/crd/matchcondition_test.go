// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim/crd"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/webhook"
)

// everything returns a server with a webhook for every resource, which is down: who calls it fails.
func everything(t *testing.T, policy admissionregistrationv1.FailurePolicyType, conditions ...admissionregistrationv1.MatchCondition) kubernetes.Interface {
	t.Helper()
	s := crd.New(t, scheme.Scheme)
	w := webhook.New(webhook.Options{Name: "guard", Scheme: scheme.Scheme, Service: types.NamespacedName{Namespace: "guard-system", Name: "guard"}})
	all := []string{"*"}
	w.Validating(func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return nil, nil
	}, webhook.Registration{ //nolint:nilnil // it allows
		Name: "all.guard.example.com", FailurePolicy: policy, MatchConditions: conditions,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: all, APIVersions: all, Resources: []string{"*/*"}},
		}},
	})
	objects := testkit.Must(w.Manifests())
	installed := make([]runtime.Object, len(objects))
	for i := range objects {
		installed[i] = objects[i]
	}
	_, ca, err := envtest.ServingCertificate()
	testkit.NoError(t, err)
	_, err = envtest.InstallWebhooks(t.Context(), s.Config(), envtest.Webhooks{Objects: installed, Address: "127.0.0.1:1", CABundle: ca})
	testkit.NoError(t, err)
	return kubernetes.NewForConfigOrDie(s.Config())
}

// TestAWebhookOfEverythingLetsItsServerStart: on a real API server,
// webhook.TestRealServer_AWebhookOfEverythingLetsItsServerStart shows the same.
func TestAWebhookOfEverythingLetsItsServerStart(t *testing.T) {
	c, ctx, o := everything(t, admissionregistrationv1.Fail), t.Context(), metav1.CreateOptions{}
	named := metav1.ObjectMeta{Name: "one"}
	volume := "one"
	for what, create := range map[string]func() error{
		"Lease": func() error {
			_, err := c.CoordinationV1().Leases("default").Create(ctx, &coordinationv1.Lease{ObjectMeta: named}, o)
			return err
		},
		"Node": func() error {
			_, err := c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: named}, o)
			return err
		},
		"CertificateSigningRequest": func() error {
			_, err := c.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
				ObjectMeta: named, Spec: certificatesv1.CertificateSigningRequestSpec{
					Request: []byte("x"), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
				},
			}, o)
			return err
		},
		"CSINode": func() error {
			_, err := c.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{ObjectMeta: named}, o)
			return err
		},
		"VolumeAttachment": func() error {
			_, err := c.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{ObjectMeta: named, Spec: storagev1.VolumeAttachmentSpec{
				Attacher: "csi.example.com", NodeName: "one", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
			}}, o)
			return err
		},
	} {
		testkit.NoError(t, create(), what)
	}
	testkit.ErrorSatisfies(t, createMap(ctx, c, "a"), apierrors.IsInternalError, "a ConfigMap, which is not vital")
}

func createMap(ctx context.Context, c kubernetes.Interface, name string) error {
	_, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// TestMatchConditions: a condition that is false keeps the webhook out, also beside one that fails.
// One that fails follows the failure policy.
func TestMatchConditions(t *testing.T) {
	const called, uncalled, forbidden = "called", "not called", "forbidden"
	// The webhook is down: its calls fail with the failure policy Fail, and not with Ignore.
	for expression, want := range map[string][2]string{
		"object.metadata.name == 'a'":                                      {called, uncalled},
		"object.metadata.name != 'a'":                                      {uncalled, uncalled},
		"oldObject == null && request.operation == 'CREATE'":               {called, uncalled},
		"request.userInfo.username == 'nobody'":                            {uncalled, uncalled},
		"object.spec.color == 'red'":                                       {forbidden, uncalled},
		"object.(":                                                         {forbidden, uncalled},
		"authorizer.group('').resource('pods').check('list').allowed()":    {called, uncalled},
		"!authorizer.group('').resource('pods').check('list').allowed()":   {uncalled, uncalled},
		"request.dryRun || request.resource.resource == 'configmaps'":      {called, uncalled},
		"request.options.kind == 'CreateOptions'":                          {called, uncalled},
		"request.namespace == 'default' && has(request.subResource)":       {uncalled, uncalled},
		"object.kind == 'ConfigMap' && object.apiVersion == 'v1'":          {called, uncalled},
		"request.kind.kind == 'ConfigMap' && request.kind.version == 'v1'": {called, uncalled},
	} {
		for i, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
			c := everything(t, policy, admissionregistrationv1.MatchCondition{Name: "test", Expression: expression})
			err := createMap(t.Context(), c, "a")
			got := uncalled
			switch {
			case apierrors.IsForbidden(err):
				got = forbidden
			case apierrors.IsInternalError(err):
				got = called
			case err != nil:
				got = err.Error()
			}
			testkit.Equal(t, got, want[i], expression, policy, err)
		}
	}
	c := everything(t, admissionregistrationv1.Fail,
		admissionregistrationv1.MatchCondition{Name: "fails", Expression: "object.spec.color == 'red'"},
		admissionregistrationv1.MatchCondition{Name: "false", Expression: "false"})
	testkit.NoError(t, createMap(t.Context(), c, "a"), "one is false")
	c = everything(t, admissionregistrationv1.Fail, admissionregistrationv1.MatchCondition{Name: "fails", Expression: "object.spec.color == 'red'"})
	testkit.ErrorContains(t, createMap(t.Context(), c, "a"), "no such key: spec", "one fails")
}
