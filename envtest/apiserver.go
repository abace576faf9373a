// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var errNotOurs = errors.New("envtest: cannot stop or start the API server of an existing cluster; leave Options.Kubeconfig empty")

// StopAPIServer ends kube-apiserver immediately, like a crash, and returns when it has exited. Its
// address refuses connections until StartAPIServer; etcd keeps the data. Stopping a stopped server
// is a no-op.
func (c *Cluster) StopAPIServer() error {
	return c.endAPIServer(func(server *process) error { return server.stop(c.options.StopTimeout) })
}

// StartAPIServer restarts kube-apiserver with the same data and address, and returns when it is
// ready. Starting a running server is a no-op.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if c.plane == nil {
		return errNotOurs
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.StartTimeout, c.options.startTimeoutCause())
	defer cancel()
	return c.plane.startAPIServer(ctx, c.options)
}

// KillAPIServer is StopAPIServer with SIGKILL.
func (c *Cluster) KillAPIServer() error {
	return c.endAPIServer((*process).kill)
}

func (c *Cluster) endAPIServer(end func(*process) error) error {
	p := c.plane
	if p == nil {
		return errNotOurs
	}
	p.change.Lock()
	defer p.change.Unlock()
	server := p.find(apiServerName)
	if server == nil {
		return nil
	}
	p.remove(server)
	return end(server)
}

func (p *plane) startAPIServer(ctx context.Context, o Options) error {
	p.change.Lock()
	defer p.change.Unlock()
	etcd := p.find(etcdName)
	switch {
	case etcd == nil:
		return errors.New("envtest: the control plane has been stopped; start another one")
	case p.find(apiServerName) != nil:
		return nil
	}
	if err := p.serve(ctx, etcd.address, strings.TrimPrefix(p.config.Host, "https://")); err != nil {
		if server := p.find(apiServerName); server != nil {
			p.remove(server)
			err = errors.Join(err, server.stop(o.StopTimeout))
		}
		return fmt.Errorf("%w\nkube-apiserver must listen at its previous address, %s; free that port, or start another control plane", err, p.config.Host)
	}
	return nil
}

func (p *plane) find(name string) *process {
	for _, one := range p.list() {
		if one.name == name {
			return one
		}
	}
	return nil
}

func (p *plane) remove(one *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.processes = slices.DeleteFunc(p.processes, func(other *process) bool { return other == one })
}
