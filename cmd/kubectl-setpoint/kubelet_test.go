// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// kubelet is a stand-in for the kubelet of a node. It serves port-forward, as k8s.io/kubelet does:
// each connection has a stream for errors and one for data.
type kubelet struct {
	server *httptest.Server
	mu     sync.Mutex
	ports  map[string]string // by namespace/pod:port, the address that listens there
	opened int               // port-forwards
	open   sync.WaitGroup
	ended  chan struct{}
}

func startKubelet(t *testing.T) *kubelet {
	k := &kubelet{ports: map[string]string{}, ended: make(chan struct{})}
	k.server = httptest.NewTLSServer(http.HandlerFunc(k.portForward))
	t.Cleanup(func() {
		close(k.ended)
		k.server.Close()
		k.open.Wait()
	})
	return k
}

// port returns the port of the kubelet.
func (k *kubelet) port() int32 { return int32(k.server.Listener.Addr().(*net.TCPAddr).Port) }

// listen serves pages on a port of a pod.
func (k *kubelet) listen(t *testing.T, pod string, port int, pages http.Handler) {
	server := httptest.NewServer(pages)
	t.Cleanup(server.Close)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ports[fmt.Sprintf("%s:%d", pod, port)] = server.Listener.Addr().String()
}

// portForward serves /portForward/NAMESPACE/POD.
func (k *kubelet) portForward(w http.ResponseWriter, r *http.Request) {
	pod, ok := strings.CutPrefix(r.URL.Path, "/portForward/")
	if pod == "operators/stuck" { // as a node that does not answer
		select {
		case <-r.Context().Done():
		case <-k.ended:
		}
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	k.mu.Lock()
	k.opened++
	k.mu.Unlock()
	streams := make(chan httpstream.Stream, 1)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	failures := map[string]httpstream.Stream{}
	for {
		select {
		case <-conn.CloseChan():
			return
		case s := <-streams:
			id := s.Headers().Get(corev1.PortForwardRequestIDHeader)
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				failures[id] = s
				continue
			}
			k.open.Go(func() { k.forward(pod, s, failures[id]) })
		}
	}
}

// forward copies the data of one connection.
func (k *kubelet) forward(pod string, data, failure httpstream.Stream) {
	defer failure.Close()
	defer data.Close()
	port := data.Headers().Get(corev1.PortHeader)
	k.mu.Lock()
	address := k.ports[pod+":"+port]
	k.mu.Unlock()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		fmt.Fprintf(failure, "error forwarding port %s to pod: failed to connect to localhost:%s inside namespace, IPv4: dial tcp4 127.0.0.1:%s: connect: connection refused", port, port, port)
		return
	}
	defer conn.Close()
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(conn, data)
		_ = conn.Close()
	})
	_, _ = io.Copy(data, conn)
	_ = data.Reset()
	up.Wait()
}

// count returns how many port-forwards were opened.
func (k *kubelet) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.opened
}
