// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
)

var _ = Describe("A Namespace", func() {
	var namespace string

	BeforeEach(func(ctx SpecContext) {
		var err error
		namespace, err = cluster.Namespace(ctx, "teams")
		Expect(err).NotTo(HaveOccurred())
	})

	setTeam := func(ctx SpecContext, team string) {
		GinkgoHelper()
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, label, team)
		_, err := client.For[*corev1.Namespace](direct).Patch(ctx, types.NamespacedName{Name: namespace}, types.MergePatchType, patch)
		Expect(err).NotTo(HaveOccurred())
	}
	// configMap waits until the operator has nothing left to do: no Eventually, no Consistently.
	configMap := func(ctx SpecContext) (*corev1.ConfigMap, error) {
		GinkgoHelper()
		Expect(teams.Idle(ctx)).To(Succeed())
		return client.For[*corev1.ConfigMap](direct).GetLive(ctx, types.NamespacedName{Namespace: namespace, Name: "team"})
	}

	It("without the label has no ConfigMap", func(ctx SpecContext) {
		_, err := configMap(ctx)
		Expect(err).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("with the label has one, which follows the label", func(ctx SpecContext) {
		setTeam(ctx, "blue")
		Expect(configMap(ctx)).To(HaveField("Data", HaveKeyWithValue("team", "blue")))
		setTeam(ctx, "green")
		Expect(configMap(ctx)).To(HaveField("Data", HaveKeyWithValue("team", "green")))
	})

	It("gets its ConfigMap back after a deletion", func(ctx SpecContext) {
		setTeam(ctx, "blue")
		Expect(configMap(ctx)).NotTo(BeNil())
		key := types.NamespacedName{Namespace: namespace, Name: "team"}
		Expect(client.For[*corev1.ConfigMap](direct).Delete(ctx, key)).To(Succeed())
		Expect(configMap(ctx)).To(HaveField("Data", HaveKeyWithValue("team", "blue")))
	})
})
