// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

type commands interface {
	etcd(d *runDir) (*process, error)
	// apiServer starts a server on address, whose port may be 0. It may wait until the server
	// listens.
	apiServer(ctx context.Context, d *runDir, etcd, address string, k keys) (*process, error)
	controllerManager(d *runDir, host string, k keys) (*process, error)
}

type keys struct {
	ca       *authority
	server   keyPair
	admin    keyPair
	tokenKey string // a file
}

// In start order.
const (
	etcdName              = "etcd"
	apiServerName         = "kube-apiserver"
	controllerManagerName = "kube-controller-manager"
)

type plane struct {
	commands commands
	dir      *runDir
	ca       *authority
	keys     keys
	config   *rest.Config

	change    sync.Mutex // held while processes start or stop after startPlane
	mu        sync.Mutex // guards processes
	processes []*process // in start order
}

func startPlane(ctx context.Context, cmds commands, o Options) (*plane, error) {
	p := &plane{commands: cmds}
	var err error
	if p.dir, err = newRunDir(runParent()); err != nil {
		return nil, err
	}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.stop(o.StopTimeout))
	}
	return p, nil
}

func (p *plane) start(ctx context.Context) error {
	if err := p.makeKeys(); err != nil {
		return err
	}
	etcd, err := p.commands.etcd(p.dir)
	if err != nil {
		return err
	}
	p.add(etcd)
	url, err := etcd.ready(ctx)
	if err != nil {
		return err
	}
	return p.serve(ctx, url, "127.0.0.1:0")
}

func (p *plane) serve(ctx context.Context, etcd, listen string) error {
	server, err := p.commands.apiServer(ctx, p.dir, etcd, listen, p.keys)
	if err != nil {
		return err
	}
	p.add(server)
	address, err := server.ready(ctx)
	if err != nil {
		return err
	}
	if p.config == nil {
		p.config = &rest.Config{
			Host:            "https://" + address,
			TLSClientConfig: rest.TLSClientConfig{CAData: p.ca.pem, CertData: p.keys.admin.cert, KeyData: p.keys.admin.key},
			QPS:             -1,
		}
	}
	return p.waitReady(ctx, server)
}

func (p *plane) makeKeys() error {
	var err error
	if p.ca, err = newAuthority(); err != nil {
		return err
	}
	p.keys = keys{ca: p.ca, tokenKey: filepath.Join(p.dir.path, "service-account.key")}
	if p.keys.server, err = p.ca.server(); err != nil {
		return err
	}
	if p.keys.admin, err = p.ca.client("envtest-admin", "system:masters"); err != nil {
		return err
	}
	signing, err := newSigningKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.keys.tokenKey, signing, 0o600); err != nil {
		return dataError(err)
	}
	return nil
}

func (p *plane) waitReady(ctx context.Context, server *process) error {
	c, err := newClients(p.config)
	if err != nil {
		return err
	}
	defer c.closeConnection()
	server.probe = func() error {
		_, err := c.discovery.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	}
	return server.probed(ctx)
}

func (p *plane) finish(ctx context.Context, c *Cluster) error {
	if c.options.Controllers {
		manager, err := p.commands.controllerManager(p.dir, p.config.Host, p.keys)
		if err != nil {
			return err
		}
		p.add(manager)
		if _, err := manager.ready(ctx); err != nil {
			return err
		}
		if err := appears(ctx, c.dynamic.Resource(serviceAccounts).Namespace("default"), "default"); err != nil {
			return c.checkAlive(fmt.Errorf("envtest: namespace default gets no service account: %w", err))
		}
	}
	if err := appears(ctx, c.dynamic.Resource(namespaces), "default"); err != nil {
		return c.checkAlive(fmt.Errorf("envtest: namespace default does not appear: %w", err))
	}
	return nil
}

func (p *plane) add(one *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.processes = append(p.processes, one)
}

func (p *plane) list() []*process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.processes)
}

func (p *plane) dead() error {
	for _, one := range p.list() {
		select {
		case <-one.done:
			if !one.stopping.Load() {
				return one.ended()
			}
		default:
		}
	}
	return nil
}

func (p *plane) stop(timeout time.Duration) error {
	p.change.Lock()
	defer p.change.Unlock()
	var errs []error
	for _, one := range slices.Backward(p.list()) {
		errs = append(errs, one.stop(timeout))
	}
	p.mu.Lock()
	p.processes = nil
	p.mu.Unlock()
	return errors.Join(append(errs, p.dir.remove())...)
}
