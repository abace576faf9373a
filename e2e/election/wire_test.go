// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/e2e/wire"
)

func newWire() (*wire.Wire, *rest.Config) {
	GinkgoHelper()
	w, cfg, err := wire.Start(cluster.Config())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Close)
	return w, cfg
}
