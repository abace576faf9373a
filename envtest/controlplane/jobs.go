// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !kubernetes1.35

package main

import (
	"context"

	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controller/job"
)

func (m *controllerManager) buildJobs(ctx context.Context, client clientset.Interface, _ *restclient.Config) (controller, error) {
	return job.NewController(ctx, client, m.informers.Core().V1().Pods(), m.informers.Batch().V1().Jobs(), nil, nil)
}
