// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/setpoint-dev/setpoint/internal/manifests"
)

// Cluster is a control plane that Start has started, or an existing cluster. Its methods are safe
// for concurrent use.
type Cluster struct {
	options Options
	config  *rest.Config
	ca      *authority // nil: an existing cluster
	plane   *plane     // nil: an existing cluster
	clients

	mu         sync.Mutex // guards namespaces
	namespaces []string   // made in an existing cluster, deleted by Stop

	stop    sync.Once
	stopErr error // written in stop
}

type clients struct {
	http      *http.Client
	dynamic   dynamic.Interface
	discovery *discovery.DiscoveryClient
}

// Start starts a control plane and returns when it serves and Options.CRDs are installed. ctx
// bounds only the start, including a build of the program. The control plane runs until Stop, or
// until this process ends for any reason. If Start fails, it leaves nothing running.
//
// The first Start on a machine builds the control plane program, which takes minutes. Meanwhile,
// Start catches SIGINT and SIGTERM to stop the build and clean up, and then re-raises them.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if o.Kubeconfig != "" {
		return existing(ctx, o)
	}
	// Report invalid manifests before a build takes minutes.
	if _, err := manifests.Read(o.CRDs...); err != nil {
		return nil, fmt.Errorf("envtest: %w", err)
	}
	commands, err := findCommands(ctx, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.StartTimeout, o.startTimeoutCause())
	defer cancel()
	p, err := startPlane(ctx, commands, o)
	if err != nil {
		return nil, err
	}
	c := &Cluster{options: o, plane: p, ca: p.ca}
	if err := c.open(ctx, p.config); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) open(ctx context.Context, cfg *rest.Config) error {
	var err error
	c.config = cfg
	if c.clients, err = newClients(cfg); err != nil {
		return err
	}
	if c.plane != nil {
		if err := c.plane.finish(ctx, c); err != nil {
			return err
		}
	}
	return c.InstallCRDs(ctx, c.options.CRDs...)
}

func existing(ctx context.Context, o Options) (*Cluster, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("envtest: cannot use Options.Kubeconfig %s: %w", o.Kubeconfig, err)
	}
	cfg.QPS = -1
	c := &Cluster{options: o}
	ctx, cancel := context.WithTimeoutCause(ctx, o.StartTimeout, fmt.Errorf("it did not answer within %v", o.StartTimeout))
	defer cancel()
	if err := c.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if _, err := c.discovery.RESTClient().Get().AbsPath("/version").DoRaw(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("envtest: the cluster of Options.Kubeconfig %s at %s does not answer: %w", o.Kubeconfig, cfg.Host, err), c.Stop())
	}
	return c, nil
}

func newClients(cfg *rest.Config) (clients, error) {
	var c clients
	var err error
	cfg = rest.CopyConfig(cfg)
	rest.AddUserAgent(cfg, "setpoint-envtest")
	if c.http, err = rest.HTTPClientFor(cfg); err != nil {
		return c, fmt.Errorf("envtest: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(cfg, c.http); err != nil {
		return c, fmt.Errorf("envtest: %w", err)
	}
	if c.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(cfg, c.http); err != nil {
		return c, fmt.Errorf("envtest: %w", err)
	}
	return c, nil
}

// closeConnection sees through client-go's wrappers, unlike http.Client.CloseIdleConnections.
func (c clients) closeConnection() {
	if c.http != nil {
		utilnet.CloseIdleConnectionsFor(c.http.Transport)
	}
}

// Stop ends every process and removes their data. On an existing cluster it deletes the namespaces
// that Namespace created, without waiting for their end. It reports processes that had already
// ended by themselves. Every call returns the same error.
func (c *Cluster) Stop() error {
	c.stop.Do(func() {
		if c.plane != nil {
			c.stopErr = c.plane.stop(c.options.StopTimeout)
		} else {
			c.stopErr = c.deleteNamespaces()
		}
		c.closeConnection()
	})
	return c.stopErr
}

// checkAlive joins err with the error of a process that has ended: err may be a consequence.
func (c *Cluster) checkAlive(err error) error {
	if err == nil || c.plane == nil {
		return err
	}
	if dead := c.plane.dead(); dead != nil {
		return errors.Join(err, dead)
	}
	return err
}

const requestTimeout = 10 * time.Second
