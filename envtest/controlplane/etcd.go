// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

type etcdConfig struct {
	// Dir is the directory of this control plane. etcd outlives the other processes and removes it.
	Dir string `json:"dir"`
	// Lock is a file that is removed with Dir. Every process inherits it open and locked; a lock on
	// it means that Dir is in use.
	Lock string `json:"lock"`
}

// runEtcd serves on a Unix socket in Dir: no port can conflict, and only this user can connect.
func runEtcd(p *pipe) error {
	var c etcdConfig
	if err := p.read(&c); err != nil {
		return err
	}
	client := url.URL{Scheme: "unix", Path: filepath.Join(c.Dir, "etcd.sock")}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(c.Dir, "peer.sock")}
	etcd, err := embed.StartEtcd(embedConfig(filepath.Join(c.Dir, "etcd"), client, peer))
	if err != nil {
		return fmt.Errorf("cannot start etcd in %s: %w", c.Dir, err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		p.serving(client.String())
	case err := <-etcd.Err():
		return fmt.Errorf("etcd in %s failed: %w", c.Dir, err)
	}
	stop := make(chan struct{})
	go func() { p.wait(); close(stop) }()
	select {
	case <-stop:
	case err := <-etcd.Err():
		return fmt.Errorf("etcd in %s failed: %w", c.Dir, err)
	}
	// The data is discarded, so an orderly shutdown is unnecessary.
	if err := os.RemoveAll(c.Dir); err != nil {
		return err
	}
	return os.Remove(c.Lock)
}

func embedConfig(dir string, client, peer url.URL) *embed.Config {
	c := embed.NewConfig()
	c.Dir = dir
	c.UnsafeNoFsync = true
	c.ListenClientUrls = []url.URL{client}
	c.ListenPeerUrls = []url.URL{peer}
	// etcd requires an advertised port; nothing connects to it.
	nowhere := url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = []url.URL{nowhere}, []url.URL{nowhere}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	// The only member elects itself after one election timeout, which is 1 s by default.
	c.TickMs, c.ElectionMs = 20, 100
	c.EnableGRPCGateway = false
	// Twice the default. A test that writes more has other problems.
	c.QuotaBackendBytes = 4 << 30
	c.WarningApplyDuration, c.WarningUnaryRequestDuration = 10*time.Second, 10*time.Second
	c.LogLevel = "warn"
	c.LogOutputs = []string{"stderr"}
	return c
}
