// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/server"
)

// simulation is a sim that listens on the loopback interface, so that the demo treats it like any
// cluster, and kubectl can reach it.
type simulation struct {
	kubeconfig string // a file
	http       *http.Server
	running    sync.WaitGroup
	err        error // why it ended, after running
}

// simulate starts a sim with the built-in kinds. Its kubeconfig is in dir.
func simulate(dir string, log *slog.Logger) (*simulation, error) {
	kinds := runtime.NewScheme()
	if err := scheme.AddToScheme(kinds); err != nil {
		return nil, err
	}
	api := sim.NewServer()
	if err := api.Load(kinds); err != nil {
		return nil, err
	}
	listener, err := server.Listen("127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the sim cannot listen: %w", err)
	}
	s := &simulation{kubeconfig: filepath.Join(dir, "kubeconfig")}
	if err := writeKubeconfig(s.kubeconfig, listener.Addr()); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	s.http = &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "sim.test" },
			Transport:     api,
			FlushInterval: -1, // watches
			ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
			ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
		ReadHeaderTimeout: time.Minute,
	}
	s.running.Go(func() { s.err = s.http.Serve(listener) })
	return s, nil
}

func writeKubeconfig(path string, at net.Addr) error {
	config := api.NewConfig()
	config.Clusters["sim"] = &api.Cluster{Server: "http://" + at.String()}
	config.Contexts["sim"] = &api.Context{Cluster: "sim"}
	config.CurrentContext = "sim"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the sim's kubeconfig: %w", err)
	}
	return nil
}

// stop ends all connections. The sim may be nil.
func (s *simulation) stop() error {
	if s == nil {
		return nil
	}
	err := s.http.Close()
	s.running.Wait()
	if !errors.Is(s.err, http.ErrServerClosed) {
		err = errors.Join(err, s.err)
	}
	return err
}
