// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/envtest"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/examples/website/operator"
	"github.com/setpoint-dev/setpoint/server"
)

//go:embed config/crd/web.example.com_websites.yaml
var builtinCRD []byte

// demo is one run of this program.
type demo struct {
	options
	log     *slog.Logger
	table   *table
	health  net.Listener // nil: none
	hooks   *webhooks
	dir     string           // for temporary files
	sim     *simulation      // nil: a cluster
	cluster *envtest.Cluster // ours, yours or the sim
}

// run does what the flags request, and returns when everything that it started has stopped. If the
// context's end is the only reason, the error is its cause.
func (d *demo) run(ctx context.Context) (err error) {
	if d.http != "" { // fail for a taken port before a control plane starts
		l, err := server.Listen(d.http)
		if err != nil {
			return fmt.Errorf("-http: %w", err)
		}
		defer l.Close()
		d.health = l
	}
	if d.hooks, err = listenForWebhooks(d.webhooks); err != nil {
		return err
	}
	defer d.hooks.listener.Close()
	if d.dir, err = os.MkdirTemp("", "website-"); err != nil {
		return fmt.Errorf("cannot create a temporary directory: %w", err)
	}
	defer os.RemoveAll(d.dir)

	if err := d.start(ctx); err != nil {
		return orCause(ctx, err)
	}
	err = orCause(ctx, d.operate(ctx))
	if stopErr := d.stop(); stopErr != nil { //nolint:contextcheck // even if ctx is done
		return errors.Join(err, stopErr)
	}
	if err == nil {
		d.table.row("stopped", "all that was started; nothing is left")
	}
	return err
}

// orCause returns the context's cause instead of its consequences.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); err == nil || errors.Is(err, cause) || errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// start starts what the flags request, and prints it in the first line.
func (d *demo) start(ctx context.Context) error {
	o := envtest.Options{Controllers: true, Kubeconfig: d.kubeconfig, Progress: d.err}
	place := "envtest/sim, an API server in memory; -cluster uses a real control plane"
	switch {
	case d.kubeconfig != "":
		if _, err := os.Stat(d.kubeconfig); err != nil {
			return fmt.Errorf("cannot read the kubeconfig: %w; use an existing file, or omit -kubeconfig to run on the sim", err)
		}
		place = "your cluster, of the kubeconfig " + d.kubeconfig
	case d.controlPlane:
		place = "a real control plane: etcd, kube-apiserver and kube-controller-manager, on this machine only"
	default:
		var err error
		if d.sim, err = simulate(d.dir, d.log); err != nil {
			return err
		}
		o.Kubeconfig = d.sim.kubeconfig // from here on it is a cluster like any other
	}
	fmt.Fprintf(d.out, "This runs on %s.\n", place)
	d.table = newTable(d.out)
	var err error
	if d.cluster, err = envtest.Start(ctx, o); err != nil {
		return errors.Join(err, d.sim.stop())
	}
	d.table.row("API server", "%s answers", d.cluster.Config().Host)
	return nil
}

// stop stops what start has started.
func (d *demo) stop() error { return errors.Join(d.cluster.Stop(), d.sim.stop()) }

// operate installs what the operator needs, and runs it.
func (d *demo) operate(ctx context.Context) error {
	scheme, err := operator.Scheme()
	if err != nil {
		return err
	}
	c, err := client.New(d.cluster.Config(), client.Options{Scheme: scheme, FieldOwner: "website-demo"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := d.installCRD(ctx, c); err != nil {
		return err
	}
	d.table.row("CRD", "websites.%s is served", v1.SchemeGroupVersion.Group)
	remove, err := d.hooks.install(ctx, d.cluster, c)
	if err != nil {
		return err
	}
	d.table.row("webhooks", "https://%s sets defaults, validates and converts", d.hooks.listener.Addr())
	return errors.Join(d.runOperator(ctx, c), d.leaveNoWebhooks(ctx, remove))
}

// runOperator runs the operator and, beside it, what the flags request.
func (d *demo) runOperator(ctx context.Context, c *client.Client) error {
	mgr, err := operator.New(d.cluster.Config(), operator.Options{Webhooks: d.hooks.Webhooks, Logger: d.log})
	if err != nil {
		return err
	}
	if d.health != nil {
		server.AddHealth(mgr, server.Options{Listener: d.health})
	}
	debug.Add(mgr, debug.Options{Address: d.debug})
	standIn, err := d.standIn(ctx, c)
	if err != nil {
		return err
	}
	return beside(ctx, func(ctx context.Context) error {
		if err := mgr.WaitReady(ctx); err != nil {
			return err
		}
		d.table.row("operator", "%s is ready", operator.Name)
		if d.once {
			return d.tellStory(ctx, c)
		}
		return d.keepRunning(ctx)
	}, mgr.Run, standIn)
}

// leaveNoWebhooks removes the webhooks from your cluster: without the operator, they would refuse
// all Websites.
func (d *demo) leaveNoWebhooks(ctx context.Context, remove func(context.Context) error) error {
	if d.kubeconfig == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patienceToRemove)
	defer cancel()
	if err := remove(ctx); err != nil {
		return fmt.Errorf("the webhooks are left behind: %w", err)
	}
	return nil
}

// installCRD installs the CRD that the flags request. It never removes the CRD from your cluster,
// because that would delete all Websites there.
func (d *demo) installCRD(ctx context.Context, c *client.Client) error {
	file := d.crd
	switch {
	case file == "" && d.kubeconfig != "":
		err := operator.Installed(ctx, c)
		if notServed := (*client.NotServedError)(nil); errors.As(err, &notServed) {
			return fmt.Errorf("%w, or run this command with -crd config/crd/web.example.com_websites.yaml", err)
		}
		return err
	case file == "":
		file = filepath.Join(d.dir, "crd.yaml")
		if err := os.WriteFile(file, builtinCRD, 0o600); err != nil {
			return fmt.Errorf("writing the CRD: %w", err)
		}
	}
	if err := d.cluster.InstallCRDs(ctx, file); err != nil {
		if apierrors.IsInvalid(err) {
			return fmt.Errorf("%w; correct these fields in %s, or omit -crd", err, file)
		}
		return err
	}
	if err := operator.Installed(ctx, c); err != nil {
		return fmt.Errorf("the CRD in %s is not the one of Websites: %w", file, err)
	}
	return nil
}
