// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cache"
)

func clientGoIndexes(ctx context.Context, r *packedRun) error {
	informer, err := r.kind.informer(r.config)
	if err != nil {
		return err
	}
	err = informer.AddIndexers(toolscache.Indexers{byNode: func(obj any) ([]string, error) {
		p, _ := obj.(*corev1.Pod)
		return []string{p.Spec.NodeName}, nil
	}})
	if err != nil {
		return err
	}
	r.list = func(_ context.Context, node string) (int, crclient.Object, error) {
		objects, err := informer.GetIndexer().ByIndex(byNode, node)
		pods := make([]*corev1.Pod, 0, len(objects))
		for _, o := range objects {
			p, _ := o.(*corev1.Pod)
			pods = append(pods, p.DeepCopy())
		}
		return firstOf(pods, err)
	}
	return runInformer(ctx, informer, func() { close(r.ready) })
}

func runtimeNodeOf(o crclient.Object) []string {
	p, _ := o.(*corev1.Pod)
	return []string{p.Spec.NodeName}
}

func runtimeIndexes(ctx context.Context, r *packedRun) error {
	c, err := runtimeCache(r, false)
	if err != nil {
		return err
	}
	if err := c.IndexField(ctx, &corev1.Pod{}, byNode, runtimeNodeOf); err != nil {
		return err
	}
	r.list = func(ctx context.Context, node string) (int, crclient.Object, error) {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, crclient.MatchingFields{byNode: node}); err != nil || len(pods.Items) == 0 {
			return 0, nil, err
		}
		return len(pods.Items), pods.Items[0].DeepCopy(), nil
	}
	return runRuntimeCache(ctx, r, c)
}

// setpointWorksIndexed has an index of packed Pods that reads these fields.
func setpointWorksIndexed(fields ...string) func(context.Context, *packedRun) error {
	return func(ctx context.Context, r *packedRun) error {
		c, err := setpointCache(r)
		if err != nil {
			return err
		}
		s := cache.Scope{Storage: cache.Packed}
		cache.NewIndex(cache.ForScope[*corev1.Pod](c, s), byNode, nodeOfPod, fields...)
		return setpointWorksWith(ctx, r, c, s)
	}
}

func nodeOfPod(p *corev1.Pod) []string { return []string{p.Spec.NodeName} }

func setpointIndexes(ctx context.Context, r *packedRun, s cache.Scope) error {
	c, err := setpointCache(r)
	if err != nil {
		return err
	}
	pods := cache.ForScope[*corev1.Pod](c, s)
	nodes := cache.NewIndex(pods, byNode, nodeOfPod, "spec")
	r.list = func(ctx context.Context, node string) (int, crclient.Object, error) {
		return firstOf(nodes.List(ctx, node, cache.ListOptions{}))
	}
	return runWithCache(ctx, c, func(ctx context.Context) error {
		if err := pods.WaitForSync(ctx); err != nil {
			return err
		}
		close(r.ready)
		<-ctx.Done()
		return nil
	})
}
