// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/bubble"
)

// Listen also serves the server on a loopback port, for kubectl and other processes. It returns the
// path of a kubeconfig file for it. Port and file are gone when the test ends.
//
// Listen ends the test if it cannot listen, and in a synctest bubble, where sockets do not work.
func (s *Server) Listen(t TB) (kubeconfig string) {
	t.Helper()
	if bubble.Inside() {
		t.Fatal("sim: Listen opens a socket, and sockets do not work in a synctest bubble; use Server.Config, or call it outside of the bubble")
	}
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("sim: cannot listen: %v; Listen needs a loopback interface", err)
	}
	var running sync.WaitGroup
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Done()
		forward(s, w, r)
	})}
	running.Go(func() {
		// It returns when the server is closed.
		_ = server.Serve(listener)
	})
	t.Cleanup(func() {
		_ = server.Close()
		running.Wait()
	})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfigOf("http://"+listener.Addr().String()), path); err != nil {
		t.Fatalf("sim: cannot write a kubeconfig: %v", err)
	}
	return path
}

func kubeconfigOf(url string) clientcmdapi.Config {
	const name = "sim"
	return clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: url}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {}},
		CurrentContext: name,
	}
}

// forward answers one request of the socket. An answer that fails breaks the connection.
func forward(s *Server, w http.ResponseWriter, r *http.Request) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.RequestURI = "http", r.Host, ""
	resp, err := s.RoundTrip(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	flush := http.NewResponseController(w)
	// An error means that the client left.
	_ = flush.Flush()
	buffer := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return
			}
			_ = flush.Flush()
		}
		switch {
		case err == io.EOF:
			return
		case err != nil:
			panic(http.ErrAbortHandler)
		}
	}
}
