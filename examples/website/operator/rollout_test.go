// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/examples/website/api/v1alpha1"
	"github.com/setpoint-dev/setpoint/examples/website/operator"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

// The replicas manage their certificates with the permissions of the manifests only.
var _ = Describe("A rollout", func() {
	It("fails no request", func(ctx SpecContext) {
		service := newService()
		world, account := newWorld(ctx, service.address())
		site, err := client.For[*v1.Website](world).Create(ctx, siteIn("default", 1, "one"))
		Expect(err).NotTo(HaveOccurred())
		register(ctx, world, service.address())

		stop := service.replica(account)
		Eventually(ctx, func() error { return use(ctx, world, key(site)) }).Should(Succeed())
		var requests, refused atomic.Int32
		loadCtx, endLoad := context.WithCancel(ctx)
		var load sync.WaitGroup
		load.Go(func() {
			for loadCtx.Err() == nil {
				requests.Add(1)
				if err := use(loadCtx, world, key(site)); err != nil && loadCtx.Err() == nil {
					GinkgoWriter.Println("failed:", err)
					refused.Add(1)
				}
			}
		})
		for range 3 {
			next := service.replica(account)
			before := requests.Load()
			stop()
			stop = next
			Eventually(ctx, requests.Load).Should(BeNumerically(">", before+5))
		}
		endLoad()
		load.Wait()
		stop()
		Expect(refused.Load()).To(BeZero(), "of %d requests", requests.Load())
	})
})

// use calls all webhooks: a dry run of a new Website, and one in its first version.
func use(ctx context.Context, c *client.Client, key types.NamespacedName) error {
	site := siteIn(key.Namespace, 1, "another")
	site.Name = "another"
	made, err := client.For[*v1.Website](c).Create(ctx, site, client.DryRun())
	if err == nil && made.Spec.Host == "" {
		err = errors.New("the site has no host")
	}
	old, readErr := client.For[*v1alpha1.Website](c).GetLive(ctx, key)
	if readErr == nil && old.Spec.Content != "one" {
		readErr = errors.New("the site is not converted")
	}
	return errors.Join(err, readErr)
}

// newWorld starts an API server with the manifests. account is the operator's ServiceAccount.
func newWorld(ctx context.Context, address string) (admin *client.Client, account *rest.Config) {
	GinkgoHelper()
	world, err := envtest.Start(ctx, envtest.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(world.Stop()).To(Succeed()) })
	crds, _, others := manifests("../config/default")
	Expect(world.InstallCRDs(ctx, crds...)).To(Succeed())
	Expect(world.Apply(ctx, others...)).To(Succeed())
	account, err = world.ConfigFor("system:serviceaccount:" + systemNamespace + ":" + operator.Name)
	Expect(err).NotTo(HaveOccurred())
	scheme, err := operator.Scheme()
	Expect(err).NotTo(HaveOccurred())
	admin, err = client.New(world.Config(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(admin.Close)
	return admin, account
}

// register makes the API server call an address in place of the Service.
func register(ctx context.Context, c *client.Client, address string) {
	GinkgoHelper()
	hooks, err := operator.Webhooks(webhook.Options{URL: "https://" + address})
	Expect(err).NotTo(HaveOccurred())
	objects, err := hooks.Manifests()
	Expect(err).NotTo(HaveOccurred())
	for _, obj := range objects {
		h := client.ForKind[*unstructured.Unstructured](c, obj.GroupVersionKind())
		if conversion, found, _ := unstructured.NestedMap(obj.Object, "spec", "conversion"); found {
			patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/conversion", "value": conversion}})
			Expect(err).NotTo(HaveOccurred())
			_, err = h.Patch(ctx, types.NamespacedName{Name: obj.GetName()}, types.JSONPatchType, patch)
			Expect(err).NotTo(HaveOccurred())
			continue
		}
		_, err := h.Create(ctx, obj)
		Expect(err).NotTo(HaveOccurred())
	}
}

// service replaces a Service: it forwards each connection to the newest endpoint.
type service struct {
	listener net.Listener

	mu        sync.Mutex
	endpoints []string
}

func newService() *service {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	s := &service{listener: l}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.forward(from) })
		}
	})
	DeferCleanup(func() {
		l.Close()
		running.Wait()
	})
	return s
}

func (s *service) address() string { return s.listener.Addr().String() }

func (s *service) forward(from net.Conn) {
	defer from.Close()
	s.mu.Lock()
	endpoint := ""
	if n := len(s.endpoints); n > 0 {
		endpoint = s.endpoints[n-1]
	}
	s.mu.Unlock()
	to, err := net.Dial("tcp", endpoint)
	if err != nil {
		return
	}
	defer to.Close()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, to)
		from.Close()
	})
	_, _ = io.Copy(to, from)
	to.Close()
	back.Wait()
}

// replica starts one. When it is ready, it becomes the newest endpoint. stop ends it.
func (s *service) replica(account *rest.Config) (stop func()) {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	hooks, err := operator.Webhooks(webhook.Options{
		// On a busy machine, the API server may take seconds to use a connection again.
		URL: "https://" + s.address(), Server: server.Options{Listener: l, Linger: 5 * time.Second},
		Certificates: webhook.CertificateOptions{Propagation: time.Second},
	})
	Expect(err).NotTo(HaveOccurred())
	mgr, err := operator.New(account, operator.Options{
		LeaderElection: &leaderelection.Options{Lease: operator.Name, Namespace: systemNamespace}, Webhooks: hooks, Logger: logger,
	})
	Expect(err).NotTo(HaveOccurred())
	stop = start(mgr)
	Eventually(hooks.Check).WithContext(context.Background()).Should(Succeed())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints = append(s.endpoints, l.Addr().String())
	return stop
}
