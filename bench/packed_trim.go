// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientinformers "k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/setpoint-dev/setpoint/cache"
)

// trim is hold with a transform that drops most of each object.
const trim job = "trim"

// trimScene has 15,000 Nodes by default.
func trimScene() scene {
	most := func(ofRuntime float64) []packedBase { return []packedBase{{clientGoName, 0}, {runtimeName, ofRuntime}} }
	return scene{string(trim), trim, "nodes", map[string]float64{"nodes": 0.15}, []packedRow{
		{"peak resident memory of the first sync, with a transform", peakFigure, "%.0f MB", 1e-6, most(0.6), 0},
		{"heap after that", heapFigure, "%.1f MB", 1e-6, most(0), 0},
		{"processor time of that sync", cpuFigure, "%.2f s", 1, most(0), 0},
	}}
}

var nodesKind = &packedKind{
	name: "nodes", title: "large Nodes", gvk: corev1.SchemeGroupVersion.WithKind("Node"), plural: "nodes", clusterScoped: true,
	object: func(i int, s state) runtime.Object { return largeNodeOf(i, s) },
	informer: builtInInformer(func(f clientinformers.SharedInformerFactory) toolscache.SharedIndexInformer {
		return f.Core().V1().Nodes().Informer()
	}),
	runtimes: func() crclient.Object { return &corev1.Node{} },
	handle:   handleOf[*corev1.Node],
}

// largeNodeOf returns a Node with 280 images: 78 KB as protobuf, and 5 KB without images and
// managedFields.
func largeNodeOf(i int, s state) *corev1.Node {
	n := &corev1.Node{ObjectMeta: packedMeta(i, s, managedBy("kubelet", "status", "v1", podStatusFields, i))}
	n.Namespace, n.Name = "", fmt.Sprintf("node-%05d.example.internal", i)
	n.UID = types.UID(fmt.Sprintf("6f1c2d3e-0000-4000-8000-%012d", i))
	n.Labels = map[string]string{corev1.LabelHostname: n.Name, corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3)}
	n.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	for j := range 16 {
		n.Labels[fmt.Sprintf("feature.node.example.com/cpu-feature-%02d", j)] = "true"
		n.Annotations[fmt.Sprintf("network.example.com/interface-%02d", j)] = fmt.Sprintf("10.%d.%d.0/24,mtu=9000", j, i%256)
	}
	n.Spec.ProviderID, n.Spec.PodCIDR = "example:///"+n.Name, fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)
	for j := range 12 {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(fmt.Sprint("Condition", j)), Status: corev1.ConditionFalse, LastHeartbeatTime: n.CreationTimestamp,
			LastTransitionTime: n.CreationTimestamp, Reason: "KubeletHasNoProblem", Message: "kubelet has enough of what this condition is about",
		})
		resources := corev1.ResourceName(fmt.Sprintf("example.com/device-%02d", j))
		if n.Status.Capacity == nil {
			n.Status.Capacity, n.Status.Allocatable = corev1.ResourceList{}, corev1.ResourceList{}
		}
		n.Status.Capacity[resources], n.Status.Allocatable[resources] = *resource.NewQuantity(int64(j), resource.DecimalSI), *resource.NewQuantity(int64(j), resource.DecimalSI)
	}
	for image := range 280 {
		name := fmt.Sprintf("registry.example.com/team-%02d/service-%04d", i%50, (i+image)%5000)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", name, i+image), fmt.Sprintf("%s:v1.%d.%d-build.%032x", name, image, i%10, i+image), name + ":latest"},
			SizeBytes: int64(10_000_000 + image),
		})
	}
	return n
}

// trimmed is the transform of all contestants.
func trimmed(obj any) (any, error) {
	if n, ok := obj.(*corev1.Node); ok {
		n.Status.Images, n.ManagedFields = nil, nil
	}
	return obj, nil
}

func clientGoTrims(ctx context.Context, r *packedRun) error {
	informer, err := r.kind.informer(r.config)
	if err != nil {
		return err
	}
	if err := informer.SetTransform(trimmed); err != nil {
		return err
	}
	return runInformer(ctx, informer, func() { close(r.ready) })
}

func runtimeTrims(ctx context.Context, r *packedRun) error {
	crlog.SetLogger(quietLog)
	c, err := crcache.New(r.config, crcache.Options{Scheme: newPackedScheme(), DefaultTransform: trimmed})
	if err != nil {
		return err
	}
	return runRuntimeCache(ctx, r, c)
}

func setpointTrims(s cache.Scope) func(context.Context, *packedRun) error {
	s.Transform = cache.NewTransform("no images", func(n *corev1.Node) { _, _ = trimmed(n) })
	return func(ctx context.Context, r *packedRun) error { return setpointHolds(ctx, r, s, r.kind) }
}
