// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest"
)

// frontend is an API server whose certificate can be replaced. It forwards requests to the real
// one.
type frontend struct {
	address string
	handler http.Handler
	server  *http.Server
	ended   sync.WaitGroup
}

func newFrontend() *frontend {
	GinkgoHelper()
	cfg := rest.AnonymousClientConfig(cluster.Config()) // requests have the token of the pod
	h, err := rest.HTTPClientFor(cfg)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(h.CloseIdleConnections)
	to, err := url.Parse(cfg.Host)
	Expect(err).NotTo(HaveOccurred())
	f := &frontend{address: "127.0.0.1:0", handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: h.Transport, FlushInterval: -1,
		ErrorLog: log.New(io.Discard, "", 0),
	}}
	DeferCleanup(f.stop)
	return f
}

// restart makes the server listen with another certificate, and breaks all connections.
func (f *frontend) restart(certificate tls.Certificate) {
	GinkgoHelper()
	f.stop()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", f.address)
	Expect(err).NotTo(HaveOccurred())
	f.address = l.Addr().String()
	f.server = &http.Server{
		Handler: f.handler, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	f.ended.Go(func() { _ = f.server.ServeTLS(l, "", "") })
}

func (f *frontend) stop() {
	if f.server != nil {
		_ = f.server.Close()
	}
	f.ended.Wait()
}

var _ = Describe("In-cluster configuration", func() {
	It("goes on when the CA is rotated", func(ctx SpecContext) {
		a, volume, f := newAccount(ctx), GinkgoT().TempDir(), newFrontend()
		token, id := a.token(ctx, "first")
		var certificates [3]tls.Certificate
		var cas [3][]byte
		for i := range certificates {
			var err error
			certificates[i], cas[i], err = envtest.ServingCertificate()
			Expect(err).NotTo(HaveOccurred())
		}
		f.restart(certificates[0])
		a.project(volume, "..first", token, cas[0])
		p := startPod(ctx, volume, "https://"+f.address)
		p.run()
		goesOn := func(name string) {
			GinkgoHelper()
			a.create(ctx, name)
			p.await(ctx, a.reconciled(name, id), true) // what broke may have failed
		}
		goesOn("before")

		a.project(volume, "..both", token, slices.Concat(cas[0], cas[1]))
		f.restart(certificates[1])
		goesOn("with-both")

		a.project(volume, "..second", token, cas[1])
		f.restart(certificates[1])
		goesOn("with-the-second")

		f.restart(certificates[2])
		p.await(ctx, "failed: ", true)
		a.project(volume, "..third", token, cas[2])
		goesOn("with-the-third")
		p.stop()
	}, SpecTimeout(2*patience))
})
