// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// short are flags for terms that a test can wait for.
func short(lease string) []string {
	return []string{"--leader-elect-resource-name=" + lease, "--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"}
}

// newNamespace creates a namespace with a team.
func newNamespace(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{teamLabel: "blue"}}}
	_, err := admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// team returns the team in the ConfigMap of a namespace.
func team(ctx context.Context, namespace string) func() string {
	return func() string {
		config, err := admin.CoreV1().ConfigMaps(namespace).Get(ctx, "team", metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return config.Data["team"]
	}
}

// scrape reads the metrics like a Prometheus server, which rejects duplicates.
func scrape(ctx context.Context, p *process) map[string]*dto.MetricFamily {
	GinkgoHelper()
	status, body := p.get(ctx, "/metrics")
	Expect(status).To(Equal(http.StatusOK), body)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	return families
}

// of returns the value of the series with these labels, in the order of their names; -1 if it does
// not exist.
func of(family *dto.MetricFamily, labels ...string) float64 {
	for _, m := range family.GetMetric() {
		var values []string
		for _, l := range m.GetLabel() {
			values = append(values, l.GetValue())
		}
		if slices.Equal(values, labels) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return -1
}

var _ = Describe("kubestyle", func() {
	It("runs Setpoint's controllers among its own, with one registry of metrics", func(ctx SpecContext) {
		p := startProcess(cluster.Config(), short("all")...)

		By("what each controller does")
		newNamespace(ctx, "all")
		Eventually(team(ctx, "all")).WithContext(ctx).Should(Equal("blue"))
		Eventually(func() error {
			_, err := admin.CoreV1().ServiceAccounts("all").Get(ctx, "robot", metav1.GetOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "old", Labels: map[string]string{sweepLabel: "true"}}}
		_, err := admin.CoreV1().Secrets("all").Create(ctx, secret, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() bool {
			_, err := admin.CoreV1().Secrets("all").Get(ctx, "old", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}).WithContext(ctx).Should(BeTrue())
		soon := time.Now().Add(time.Second).Format(time.RFC3339)
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "short", Annotations: map[string]string{expiresAnnotation: soon}}}
		_, err = admin.CoreV1().ConfigMaps("all").Create(ctx, config, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() bool {
			_, err := admin.CoreV1().ConfigMaps("all").Get(ctx, "short", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}).WithContext(ctx).Should(BeTrue())

		By("a ConfigMap that somebody changes is brought back")
		_, err = admin.CoreV1().ConfigMaps("all").Update(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "team"}, Data: map[string]string{"team": "red"},
		}, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(team(ctx, "all")).WithContext(ctx).Should(Equal("blue"))

		By("one scrape with the host's series and ours")
		// The API server shows the patch before the process has its answer.
		Eventually(func() float64 {
			return of(scrape(ctx, p)["kubestyle_setpoint_api_requests_total"], "200", "teams", "configmaps", "patch")
		}).WithContext(ctx).Should(BeNumerically(">", 0))
		families := scrape(ctx, p)
		for _, host := range []string{"robots", "sweeper"} { // made before ours, and after
			Expect(of(families["workqueue_adds_total"], host)).To(BeNumerically(">", 0), host)
			Expect(of(families["kubestyle_workqueue_adds_total"], host, host)).To(BeNumerically("==", -1), host)
		}
		for _, ours := range []string{"teams", "expiry"} {
			Expect(of(families["kubestyle_workqueue_adds_total"], ours, ours)).To(BeNumerically(">", 0), ours)
			Expect(of(families["workqueue_adds_total"], ours)).To(BeNumerically("==", -1), ours)
			Expect(of(families["kubestyle_controller_runtime_reconcile_total"], ours, "success")).To(BeNumerically(">", 0), ours)
			Expect(of(families["kubestyle_controller_runtime_max_concurrent_reconciles"], ours)).To(BeNumerically("==", 2), ours)
		}
		Expect(of(families["leader_election_master_status"], "all")).To(BeNumerically("==", 1))
		Expect(of(families["kubestyle_leader_election_master_status"], "all")).To(BeNumerically("==", 1))
		Expect(of(families["kubestyle_setpoint_informer_objects"], "Namespace.v1", "adopted", "")).To(BeNumerically(">", 3))
		Expect(families).NotTo(HaveKey("kubestyle_setpoint_unfenced_writes_total"), "the plain controllers write under the term, too")

		By("our series have the form of the host's, with more labels and buckets")
		compared := 0
		for name, host := range families {
			if ours := families["kubestyle_"+name]; ours != nil {
				compared++
				Expect(ours.GetType()).To(Equal(host.GetType()), name)
				Expect(labelsOf(ours)).To(ContainElements(labelsOf(host)), name)
				Expect(bucketsOf(ours)).To(ContainElements(bucketsOf(host)), name)
			}
		}
		Expect(compared).To(BeNumerically(">=", 10), "those of queues, requests and leases")

		By("the checks of all of them")
		status, body := p.get(ctx, "/healthz")
		Expect(status).To(Equal(http.StatusOK))
		Expect(body).To(Equal("[+]leader-election ok\n[+]teams ok\n[+]expiry ok\n"))

		p.terminate()
		Eventually(p.ended).WithContext(ctx).Should(Receive(BeNil()))
	}, SpecTimeout(2*time.Minute))

	It("runs the controllers that --controllers enables", func(ctx SpecContext) {
		p := startProcess(cluster.Config(), append(short("few"), "--controllers=*,-sweeper,-expiry")...)
		newNamespace(ctx, "few")
		Eventually(team(ctx, "few")).WithContext(ctx).Should(Equal("blue"))
		families := scrape(ctx, p)
		Expect(of(families["workqueue_adds_total"], "robots")).To(BeNumerically(">", 0))
		Expect(of(families["workqueue_adds_total"], "sweeper")).To(BeNumerically("==", -1))
		Expect(of(families["kubestyle_workqueue_adds_total"], "expiry", "expiry")).To(BeNumerically("==", -1))
		p.terminate()
		Eventually(p.ended).WithContext(ctx).Should(Receive(BeNil()))
	}, SpecTimeout(time.Minute))

	It("runs without a Lease", func(ctx SpecContext) {
		p := startProcess(cluster.Config(), "--leader-elect=false")
		Eventually(p.printed).WithContext(ctx).Should(ContainSubstring("Leading without a Lease"))
		newNamespace(ctx, "alone")
		Eventually(team(ctx, "alone")).WithContext(ctx).Should(Equal("blue"))
		p.terminate()
		Eventually(p.ended).WithContext(ctx).Should(Receive(BeNil()))
	}, SpecTimeout(time.Minute))

	It("ends when it loses the Lease, and while it stands by", func(ctx SpecContext) {
		leader := startProcess(cluster.Config(), short("lost")...)
		Eventually(leader.printed).WithContext(ctx).Should(ContainSubstring("Leading"))
		_, err := admin.CoordinationV1().Leases("kube-system").Patch(ctx, "lost", types.MergePatchType,
			[]byte(`{"spec":{"holderIdentity":"somebody else"}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(leader.ended).WithContext(ctx).Should(Receive(HaveOccurred()))
		Expect(leader.printed()).To(ContainSubstring("the term of leadership is lost"))

		standby := startProcess(cluster.Config(), short("lost")...)
		Eventually(standby.printed).WithContext(ctx).Should(ContainSubstring("somebody else"))
		standby.terminate()
		Eventually(standby.ended).WithContext(ctx).Should(Receive(BeNil()))
		Expect(standby.printed()).NotTo(ContainSubstring("Leading"))
	}, SpecTimeout(time.Minute))

	It("releases the Lease when the work has ended, and another replica takes over", func(ctx SpecContext) {
		proxy, err := fault.Start(ctx, cluster.Config(), fault.Options{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(proxy.Stop)
		through, err := proxy.Config()
		Expect(err).NotTo(HaveOccurred())
		first := startProcess(through, short("two")...)
		Eventually(first.printed).WithContext(ctx).Should(ContainSubstring("Leading"))
		second := startProcess(cluster.Config(), short("two")...)
		Eventually(second.printed).WithContext(ctx).Should(ContainSubstring("Observed a leader"))
		leader, _ := holder(ctx, "two")

		By("asking the leader to stop while it writes")
		write := proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"patch"}, Resources: []string{"configmaps"}, Namespace: "two"}, Hold: true})
		newNamespace(ctx, "two")
		Expect(write.WaitHeld(ctx, 1)).To(Succeed())
		first.terminate()
		asked := time.Now()
		Eventually(func() time.Time { _, renewed := holder(ctx, "two"); return renewed }).WithContext(ctx).
			Should(BeTemporally(">", asked.Add(time.Second)), "the Lease is renewed while the work goes on")
		still, _ := holder(ctx, "two")
		Expect(still).To(Equal(leader))
		Expect(second.printed()).NotTo(ContainSubstring("Leading"))
		Expect(first.ended).NotTo(Receive())

		By("letting the write pass")
		write.Remove()
		Eventually(first.ended).WithContext(ctx).Should(Receive(BeNil()))
		Expect(team(ctx, "two")()).To(Equal("blue"), "the work has not been lost")
		Eventually(second.printed).WithContext(ctx).Should(ContainSubstring("Leading"))
		var worked, released time.Time
		for _, r := range proxy.Requests(fault.Match{}) {
			switch {
			case r.Verb == "patch" && r.Namespace == "two":
				worked = r.Ended
			case r.Verb == "update" && r.Resource == "leases":
				released = r.Started // the last update is the release
			}
		}
		Expect(worked).To(BeTemporally(">", asked))
		Expect(released).To(BeTemporally(">", worked))

		By("giving the other one work")
		newNamespace(ctx, "three")
		Eventually(team(ctx, "three")).WithContext(ctx).Should(Equal("blue"))
		second.terminate()
		Eventually(second.ended).WithContext(ctx).Should(Receive(BeNil()))
		nobody, _ := holder(ctx, "two")
		Expect(nobody).To(BeEmpty())
	}, SpecTimeout(2*time.Minute))
})

func bucketsOf(family *dto.MetricFamily) []float64 {
	bounds := []float64{}
	for _, b := range family.GetMetric()[0].GetHistogram().GetBucket() {
		bounds = append(bounds, b.GetUpperBound())
	}
	return bounds
}

func labelsOf(family *dto.MetricFamily) []string {
	var names []string
	for _, l := range family.GetMetric()[0].GetLabel() {
		names = append(names, l.GetName())
	}
	return names
}
