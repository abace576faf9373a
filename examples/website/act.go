// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/examples/website/kubelet"
)

const instructions = `
The operator runs. In another terminal:

  export KUBECONFIG=%s
  kubectl apply -f - <<'END'
  apiVersion: web.example.com/v1
  kind: Website
  metadata: {name: hello, namespace: default}
  spec: {replicas: 2, page: {content: "<h1>Hello</h1>"}}
  END
  kubectl get websites,configmaps,deployments,services
  kubectl get websites.v1alpha1.web.example.com hello -o yaml     # spec.content, as before v1
  kubectl patch website hello --type=merge -p '{"spec":{"page":{"content":"<script>"}}}'     # refused
  kubectl delete deployment hello     # it comes back
%s  kubectl delete website hello        # and everything it owns

Without kubectl: run this command again with -once -kubeconfig "$KUBECONFIG".
Ctrl-C stops everything that was started here.
`

// validated needs the schema of the CRD, which the sim does not check.
const validated = `  kubectl patch website hello --type=merge -p '{"spec":{"replicas":11}}'     # refused
`

// keepRunning prints instructions and waits for the end.
func (d *demo) keepRunning(ctx context.Context) error {
	kubeconfig, more := d.kubeconfig, validated
	switch {
	case d.sim != nil:
		kubeconfig, more = d.sim.kubeconfig, ""
	case kubeconfig == "":
		kubeconfig = filepath.Join(d.dir, "kubeconfig")
		if err := d.cluster.WriteKubeconfig(kubeconfig); err != nil {
			return err
		}
	}
	fmt.Fprintf(d.out, instructions, kubeconfig, more)
	<-ctx.Done()
	return ctx.Err()
}

// tellStory runs the story in its own namespace.
func (d *demo) tellStory(ctx context.Context, c *client.Client) error {
	namespace, err := d.cluster.Namespace(ctx, "website-demo")
	if err != nil {
		return err
	}
	view := cache.New(c, cache.Options{})
	s := newStory(d.table, c, view, namespace)
	return beside(ctx, func(ctx context.Context) error {
		err := s.tell(ctx)
		if err != nil && d.kubeconfig != "" {
			d.leaveNothing(ctx, s)
		}
		return d.hooks.remedy(err)
	}, view.Run)
}

// leaveNothing deletes the Website of an interrupted story, while an operator can still finalize
// it. Without one, it would block the deletion of its namespace. On our own control plane
// everything is removed anyway.
func (d *demo) leaveNothing(ctx context.Context, s *story) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := client.For[*v1.Website](s.client).Delete(ctx, s.site)
	if err == nil {
		err = await(ctx, s.websites, s.site, gone[*v1.Website])
	}
	if err != nil && !apierrors.IsNotFound(err) {
		d.table.row("left behind", "the Website %s: %v", s.site, err)
	}
}

// standIn returns a stand-in for the kubelet if there is no node, and prints that. The sim also
// lacks the controllers that make pods of a Deployment.
func (d *demo) standIn(ctx context.Context, c *client.Client) (func(context.Context) error, error) {
	for _, err := range client.For[*corev1.Node](c).ListLive(ctx, client.ListOptions{}) {
		if err != nil {
			return nil, fmt.Errorf("looking for nodes: %w", err)
		}
		return func(ctx context.Context) error { <-ctx.Done(); return nil }, nil
	}
	d.table.row("no kubelet", "no node, so no server really runs: a stand-in reports each as ready")
	if d.sim != nil {
		return kubelet.NewDeployments(d.cluster.Config(), d.log).Run, nil
	}
	return kubelet.New(d.cluster.Config(), d.log).Run, nil
}
