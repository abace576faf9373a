// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/manager"
)

// TestTeams runs the specs. They share a control plane and an operator; each has its own Namespace.
func TestTeams(t *testing.T) {
	waitsForSignals := goleak.IgnoreAnyFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2")
	before := goleak.IgnoreCurrent()
	RegisterFailHandler(Fail)
	RunSpecs(t, "Teams")
	goleak.VerifyNone(t, before, waitsForSignals)
}

var (
	cluster *envtest.Cluster
	direct  *client.Client // of the specs
	teams   *manager.Manager
)

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	cluster, err = envtest.Start(ctx, envtest.Options{Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(cluster.Stop()).To(Succeed()) })
	direct, err = client.New(cluster.Config(), client.Options{FieldOwner: "suite"})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(direct.Close)

	teams = operator(cluster.Config())
	running, stop := context.WithCancel(context.Background()) // ctx ends with BeforeSuite
	result := make(chan error, 1)
	go func() { result <- teams.Run(running) }()
	DeferCleanup(func() {
		stop()
		Expect(<-result).To(Succeed())
	})
}, NodeTimeout(20*time.Minute)) // the first run on a machine builds the control plane
