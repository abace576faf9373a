// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/envtest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(asPlugin); dir != "" {
		os.Exit(plug(dir))
	}
	if identity := os.Getenv(asOperator); identity != "" {
		os.Exit(operate(identity))
	}
	ginkgoWaitsForSignals := goleak.IgnoreAnyFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2")
	goleak.VerifyTestMain(m, ginkgoWaitsForSignals)
}

func TestElection(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Leases in trouble")
}

// patience is how long a scenario may take before it counts as hanging.
const patience = 2 * time.Minute

var cluster *envtest.Cluster

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	cluster, err = envtest.Start(ctx, envtest.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(cluster.Stop()).To(Succeed()) })
})
