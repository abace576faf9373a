// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

// installDown installs a webhook whose server is down. The returned function removes it.
func installDown(t *testing.T, cfg *rest.Config, r webhook.Registration) (remove func()) {
	t.Helper()
	w := webhook.New(webhook.Options{Name: "guard", Scheme: shops(), Service: types.NamespacedName{Namespace: "guard-system", Name: "guard"}})
	w.Validating(allow, r)
	objects, err := w.Manifests()
	testkit.NoError(t, err)
	_, ca, err := envtest.ServingCertificate()
	testkit.NoError(t, err)
	installed := make([]runtime.Object, len(objects))
	for i := range objects {
		installed[i] = objects[i]
	}
	done, err := envtest.InstallWebhooks(t.Context(), cfg, envtest.Webhooks{Objects: installed, Address: "127.0.0.1:1", CABundle: ca})
	testkit.NoError(t, err)
	return func() {
		testkit.Equal(t, done(t.Context()), nil)
	}
}

// refused reports whether a request failed because no webhook answered.
func refused(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), `failed calling webhook "all.guard.example.com"`)
}

// requestOfNode returns a request for the certificate of a node.
func requestOfNode(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:one", Organization: []string{"system:nodes"}},
	}, key)
	testkit.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// TestRealServer_AWebhookOfEverythingLetsItsServerStart: while the webhook does not answer, a node
// can join and run the webhook's server.
func TestRealServer_AWebhookOfEverythingLetsItsServerStart(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it needs a control plane")
	}
	ctx := t.Context()
	cluster, err := envtest.Start(ctx, envtest.Options{})
	testkit.NoError(t, err)
	t.Cleanup(func() {
		testkit.Equal(t, cluster.Stop(), nil)
	})
	direct := kubernetes.NewForConfigOrDie(cluster.Config())
	o := metav1.CreateOptions{}
	create := func(err error) {
		t.Helper()
		testkit.NoError(t, err)
	}
	const own = "guard-system"
	_, err = direct.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own}}, o)
	create(err)
	create(direct.RbacV1().ClusterRoles().Delete(ctx, "view", metav1.DeleteOptions{}))
	remove := installDown(t, cluster.Config(), webhook.Registration{Name: "all.guard.example.com", Rules: []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}})
	named := metav1.ObjectMeta{Name: "one"}
	for what, do := range map[string]func() error{
		"a config map": func() error {
			_, err := direct.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: named}, o)
			return err
		},
		"a role": func() error {
			_, err := direct.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: named}, o)
			return err
		},
		"a namespace": func() error {
			_, err = direct.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: named}, o)
			return err
		},
	} {
		answer := do()
		testkit.Equal(t, refused(answer), true, what, answer)
	}
	works := func(what string, err error) {
		t.Helper()
		testkit.Equal(t, err, nil, what)
	}
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: named, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: requestOfNode(t), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}}
	csr, err = direct.CertificatesV1().CertificateSigningRequests().Create(ctx, csr, o)
	works("a kubelet asks for its certificate", err)
	if err == nil {
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
		_, err = direct.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
		works("the certificate is approved", err)
	}
	node, err := direct.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: named}, o)
	works("a node joins", err)
	if err == nil {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		_, err = direct.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		works("a node reports its health", err)
	}
	_, err = direct.CoordinationV1().Leases("default").Create(ctx, &coordinationv1.Lease{ObjectMeta: named}, o)
	works("a lease", err)
	_, err = direct.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{ObjectMeta: named, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}}, o)
	works("a CSINode", err)
	_, err = direct.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: named, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example.com", VolumeHandle: "one"}},
	}}, o)
	works("a volume", err)
	attached, err := direct.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{ObjectMeta: named, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "disks.example.com", NodeName: "one", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("one")},
	}}, o)
	works("a VolumeAttachment", err)
	if err == nil {
		attached.Status.Attached = true
		_, err = direct.StorageV1().VolumeAttachments().UpdateStatus(ctx, attached, metav1.UpdateOptions{})
		works("a volume is attached", err)
	}
	_, err = direct.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "none"}}, o)
	works("a TokenReview", err)
	_, err = direct.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, o)
	works("a SelfSubjectReview", err)
	asked := &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "get", Resource: "pods"}
	_, err = direct.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "one", ResourceAttributes: asked}}, o)
	works("a SubjectAccessReview", err)
	_, err = direct.AuthorizationV1().LocalSubjectAccessReviews("default").Create(ctx, &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "one", ResourceAttributes: asked}}, o)
	works("a LocalSubjectAccessReview", err)
	_, err = direct.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: asked}}, o)
	works("a SelfSubjectAccessReview", err)
	_, err = direct.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, o)
	works("a SelfSubjectRulesReview", err)

	// The API server starts again.
	testkit.NoError(t, cluster.StopAPIServer())
	works("start", cluster.StartAPIServer(ctx))
	_, err = direct.RbacV1().ClusterRoles().Get(ctx, "view", metav1.GetOptions{})
	works("view", err)

	// In the own namespace of the webhook.
	named.Namespace = own
	_, err = direct.CoreV1().ServiceAccounts(own).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, o)
	works("a service account", err)
	_, err = direct.CoreV1().ServiceAccounts(own).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, o)
	works("a token", err)
	_, err = direct.CoreV1().Pods(own).Create(ctx, &corev1.Pod{ObjectMeta: named, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}, o)
	works("a pod", err)
	if err == nil {
		works("the pod is scheduled", direct.CoreV1().Pods(own).Bind(ctx, &corev1.Binding{ObjectMeta: named, Target: corev1.ObjectReference{Kind: "Node", Name: "one"}}, o))
		pod, err := direct.CoreV1().Pods(own).Get(ctx, "one", metav1.GetOptions{})
		works("the pod is read", err)
		pod.Status.Phase = corev1.PodRunning
		_, err = direct.CoreV1().Pods(own).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		works("the pod runs", err)
	}
	_, err = direct.CoreV1().Services(own).Create(ctx, &corev1.Service{ObjectMeta: named, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}, o)
	works("its Service", err)
	_, err = direct.DiscoveryV1().EndpointSlices(own).Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: named, AddressType: discoveryv1.AddressTypeIPv4}, o)
	works("the endpoints of its Service", err)
	_, err = direct.CoreV1().Events(own).Create(ctx, &corev1.Event{ObjectMeta: named, InvolvedObject: corev1.ObjectReference{Namespace: own}}, o)
	works("an event", err)
	remove()

	// A webhook of Pods, with the match condition of the package docs.
	installDown(t, cluster.Config(), webhook.Registration{Name: "all.guard.example.com", Rules: rule("", "pods"), MatchConditions: exceptHostNetwork})
	pods := direct.CoreV1().Pods("default")
	_, err = direct.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, o)
	create(err)
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}
	_, err = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: spec}, o)
	testkit.Equal(t, refused(err), true, "a pod", err)
	spec.HostNetwork = true
	_, err = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "network"}, Spec: spec}, o)
	works("a pod with hostNetwork", err)
}

var exceptHostNetwork = []admissionregistrationv1.MatchCondition{{
	Name: "except-host-network", Expression: "object == null || !has(object.spec.hostNetwork) || !object.spec.hostNetwork",
}}

// TestRun_WarnsOfAWebhookThatKeepsNodesFromBecomingReady.
func TestRun_WarnsOfAWebhookThatKeepsNodesFromBecomingReady(t *testing.T) {
	clusterScope := rule("*", "*")
	clusterScope[0].Scope = new(admissionregistrationv1.ClusterScope)
	exec := rule("", "pods/exec")
	deleted := rule("", "pods")
	deleted[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}
	selector := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	for name, c := range map[string]struct {
		r    webhook.Registration
		warn bool
	}{
		"pods":                  {webhook.Registration{Rules: rule("", "pods")}, true},
		"everything":            {webhook.Registration{Rules: rule("*", "*/*")}, true},
		"an opt-out":            {webhook.Registration{Rules: rule("", "pods"), ObjectSelector: selector("free", metav1.LabelSelectorOpDoesNotExist)}, true},
		"another namespace":     {webhook.Registration{Rules: rule("", "*"), NamespaceSelector: selector("kubernetes.io/metadata.name", metav1.LabelSelectorOpNotIn, "other")}, true},
		"ignored":               {webhook.Registration{Rules: rule("", "pods"), FailurePolicy: admissionregistrationv1.Ignore}, false},
		"an opt-in":             {webhook.Registration{Rules: rule("", "pods"), ObjectSelector: selector("guarded", metav1.LabelSelectorOpExists)}, false},
		"without kube-system":   {webhook.Registration{Rules: rule("", "pods"), NamespaceSelector: selector("kubernetes.io/metadata.name", metav1.LabelSelectorOpNotIn, "kube-system")}, false},
		"without hostNetwork":   {webhook.Registration{Rules: rule("", "pods"), MatchConditions: exceptHostNetwork}, false},
		"deletions":             {webhook.Registration{Rules: deleted}, false},
		"a subresource":         {webhook.Registration{Rules: exec}, false},
		"the scope Cluster":     {webhook.Registration{Rules: clusterScope}, false},
		"pods of another group": {webhook.Registration{Rules: rule("metrics.k8s.io", "pods")}, false},
	} {
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(logr.NewContextWithSlogLogger(t.Context(), slog.New(slog.NewTextHandler(&log, nil))))
		cancel()
		w := webhook.New(webhook.Options{Name: "guard", Scheme: shops(), URL: "https://guard.example.com", Server: server.Options{CertDir: t.TempDir()}})
		c.r.Name = "all.guard.example.com"
		w.Validating(allow, c.r)
		testkit.NoError(t, errors.Join(w.Validate(), w.Run(ctx, nil, nil)))
		want := 0
		if c.warn {
			want = 1
		}
		const line = "level=WARN msg=\"while this webhook does not answer, the API server rejects the Pods that make a node ready; "
		if got := strings.Count(log.String(), line); got != want || got > 0 && !strings.Contains(log.String(), "webhook=all.guard.example.com\n") {
			t.Errorf("%s: %d warnings, want %d:\n%s", name, got, want, &log)
		}
	}
}
