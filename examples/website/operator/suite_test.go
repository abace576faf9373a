// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/examples/website/kubelet"
	"github.com/setpoint-dev/setpoint/examples/website/operator"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

// The suite runs against one real control plane. It has the manifests of config/default, applied as
// a user would, and a stand-in for the kubelet. Each spec has its own namespace and its own
// operator, with exactly the permissions of the operator's ServiceAccount.
func TestOperator(t *testing.T) {
	ginkgoWaitsForSignals := goleak.IgnoreAnyFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2")
	before := goleak.IgnoreCurrent()
	RegisterFailHandler(Fail)
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultConsistentlyDuration(time.Second)
	RunSpecs(t, "Website operator")
	goleak.VerifyNone(t, before, ginkgoWaitsForSignals)
}

const systemNamespace = "website-system"

var (
	cluster   *envtest.Cluster
	clientset *kubernetes.Clientset // as the administrator
	admin     *client.Client        // as the administrator
	account   *rest.Config          // as the operator's ServiceAccount
	logger    *slog.Logger
)

var _ = BeforeSuite(func(ctx SpecContext) {
	logger = slog.New(slog.NewTextHandler(GinkgoWriter, nil))
	klog.SetSlogLogger(logger)

	var err error
	cluster, err = envtest.Start(ctx, envtest.Options{
		Controllers: true,
		// As strict as a cluster may be: setting a blocking owner reference requires permission.
		APIServerArgs: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
		Progress:      GinkgoWriter,
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(cluster.Stop()).To(Succeed()) })
	scheme, err := operator.Scheme()
	Expect(err).NotTo(HaveOccurred())
	admin, err = client.New(cluster.Config(), client.Options{Scheme: scheme, FieldOwner: "suite"})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(admin.Close)
	clientset, err = kubernetes.NewForConfigAndClient(cluster.Config(), admin.HTTPClient())
	Expect(err).NotTo(HaveOccurred())

	crds, hooks, others := manifests("../config/default")
	Expect(cluster.Apply(ctx, others...)).To(Succeed())
	account = serviceAccount(ctx)
	serveWebhooks(ctx, append(crds, hooks...))
	start(kubelet.New(cluster.Config(), logger))
}, NodeTimeout(10*time.Minute)) // the control plane is built on first use

// serveWebhooks installs CRDs and webhook configurations, and answers the API server like a replica
// that runs all the time. No Service leads to the suite, so the API server calls its address.
func serveWebhooks(ctx context.Context, paths []string) {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	certificate, ca, err := envtest.ServingCertificate()
	Expect(err).NotTo(HaveOccurred())
	hooks, err := operator.Webhooks(webhook.Options{Server: server.Options{
		Listener:       listener,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil },
	}})
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.InstallWebhooks(ctx, envtest.Webhooks{Paths: paths, Address: listener.Addr().String(), CABundle: ca})
	Expect(err).NotTo(HaveOccurred())
	mgr := manager.New(cluster.Config(), manager.Options{Name: "webhooks", Logger: logger})
	hooks.AddTo(mgr)
	start(mgr)
}

// serviceAccount authenticates like the operator in a pod: with a token for its ServiceAccount.
func serviceAccount(ctx context.Context) *rest.Config {
	GinkgoHelper()
	token, err := clientset.CoreV1().ServiceAccounts(systemNamespace).
		CreateToken(ctx, operator.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	cfg := rest.AnonymousClientConfig(cluster.Config())
	cfg.BearerToken = token.Status.Token
	return cfg
}

// runner is a manager.
type runner interface {
	Run(ctx context.Context) error
	WaitReady(ctx context.Context) error
}

// start runs a manager until stop is called or the spec ends, and waits until it is ready.
func start(r runner) (stop func()) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		GinkgoHelper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		Eventually(ended).Should(Receive(BeNil()))
	}
	DeferCleanup(stop)
	Expect(r.WaitReady(ctx)).To(Succeed())
	return stop
}

// startOperator is runOperator without the manager.
func startOperator() (stop func()) {
	GinkgoHelper()
	_, stop = runOperator()
	return stop
}

// runOperator runs the operator as in the cluster: as its ServiceAccount, with its Lease. Use the
// manager's Idle to wait until the operator has nothing left to do.
func runOperator() (mgr *manager.Manager, stop func()) {
	GinkgoHelper()
	mgr, err := operator.New(account, operator.Options{
		LeaderElection: &leaderelection.Options{Lease: operator.Name, Namespace: systemNamespace},
		Logger:         logger,
	})
	Expect(err).NotTo(HaveOccurred())
	return mgr, start(mgr)
}
