// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package stale

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
)

type pods = *client.Handle[*corev1.Pod]

func twice(ctx context.Context, h pods, pod *corev1.Pod) error {
	if _, err := h.Update(ctx, pod); err != nil {
		return err
	}
	pod.Status.Reason = "ready"
	_, err := h.UpdateStatus(ctx, pod) // want `pod is written by UpdateStatus after Update in line 20 has returned a newer one; use what Update returns`
	return err
}

func same(ctx context.Context, h pods, pod *corev1.Pod) (err error) {
	_, err = h.Update(ctx, pod)
	if err != nil {
		return err
	}
	pod.Labels = nil
	_, err = h.Update(ctx, pod) // want `pod is written by Update after Update in line 29`
	return err
}

func returned(ctx context.Context, h client.Writer[*corev1.Pod], pod *corev1.Pod) (*corev1.Pod, error) {
	_, err := h.Update(ctx, pod)
	return pod, err // want `pod is returned after Update in line 39`
}

func dropped(ctx context.Context, h pods, pod *corev1.Pod) (client.Object, error) {
	h.UpdateStatus(ctx, pod)
	return pod, nil // want `pod is returned after UpdateStatus in line 44`
}

func kept(ctx context.Context, h pods, pod *corev1.Pod) error {
	updated, err := h.Update(ctx, pod)
	if err != nil || updated == nil {
		return err
	}
	_, err = h.UpdateStatus(ctx, pod) // want `pod is written by UpdateStatus after Update in line 49`
	return err
}

func patched(ctx context.Context, h pods, pod *corev1.Pod) error {
	if _, err := h.Patch(ctx, client.ObjectKeyFromObject(pod), types.MergePatchType, nil); err != nil {
		return err
	}
	_, err := h.UpdateStatus(ctx, pod) // want `the object is written by UpdateStatus after Patch in line 58`
	return err
}

func captured(ctx context.Context, h pods, pod *corev1.Pod) error {
	do := func() error {
		if _, err := h.EnsureFinalizer(ctx, pod, "example.com/a"); err != nil {
			return err
		}
		_, err := h.UpdateStatus(ctx, pod) // want `pod is written by UpdateStatus after EnsureFinalizer in line 67`
		return err
	}
	pod = nil
	return do()
}

// What follows is right.

func assigned(ctx context.Context, h pods, pod *corev1.Pod) (*corev1.Pod, error) {
	pod, err := h.Update(ctx, pod)
	if err != nil {
		return nil, err
	}
	return h.UpdateStatus(ctx, pod)
}

func onError(ctx context.Context, h pods, pod *corev1.Pod) (*corev1.Pod, error) {
	if _, err := h.Update(ctx, pod); err != nil {
		return pod, err
	}
	return nil, nil
}

func onConflict(ctx context.Context, h pods, pod *corev1.Pod) error {
	_, err := h.Update(ctx, pod)
	if apierrors.IsConflict(err) || errors.Is(err, context.Canceled) {
		_, err = h.UpdateStatus(ctx, pod)
	}
	if client.IgnoreNotFound(err) != nil {
		_, err = h.UpdateStatus(ctx, pod)
	}
	return err
}

func known(ctx context.Context, h pods, pod *corev1.Pod) error {
	if _, err := h.Update(ctx, pod); !fine(err) {
		_, err = h.Update(ctx, pod)
		return err
	}
	return nil
}

func fine(err error) bool { return err == nil }

func retried(ctx context.Context, h pods, pod *corev1.Pod) (err error) {
	for range 3 {
		if _, err = h.Update(ctx, pod); err == nil {
			return nil
		}
	}
	return err
}

func each(ctx context.Context, h pods, list []*corev1.Pod) error {
	for _, pod := range list {
		if _, err := h.Update(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

func readAgain(ctx context.Context, h pods, pod *corev1.Pod) error {
	if _, err := h.Update(ctx, pod); err != nil {
		return err
	}
	pod, err := h.GetLive(ctx, client.ObjectKeyFromObject(pod))
	if err != nil {
		return err
	}
	_, err = h.UpdateStatus(ctx, pod)
	return err
}

func versionSet(ctx context.Context, h pods, pod *corev1.Pod) error {
	updated, err := h.Update(ctx, pod)
	if err != nil {
		return err
	}
	pod.ResourceVersion = updated.ResourceVersion
	_, err = h.UpdateStatus(ctx, pod)
	return err
}

func overwritten(ctx context.Context, h pods, pod *corev1.Pod) error {
	updated, err := h.Update(ctx, pod)
	if err != nil {
		return err
	}
	updated.DeepCopyInto(pod)
	_, err = h.UpdateStatus(ctx, pod)
	return err
}

func tried(ctx context.Context, h pods, pod *corev1.Pod) error {
	if _, err := h.Update(ctx, pod, client.DryRun()); err != nil {
		return err
	}
	_, err := h.Update(ctx, pod)
	return err
}

func branches(ctx context.Context, h pods, pod *corev1.Pod, status bool) error {
	if status {
		_, err := h.UpdateStatus(ctx, pod)
		return err
	}
	_, err := h.Update(ctx, pod)
	return err
}

func eachEither(ctx context.Context, h pods, list []*corev1.Pod) {
	for _, pod := range list {
		if pod.Name == "" {
			_, _ = h.Update(ctx, pod)
			continue
		}
		_, _ = h.UpdateStatus(ctx, pod)
	}
}
