// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// The program of the image, run as in the manifests.
var _ = Describe("The program", Ordered, func() {
	var program, kubeconfig string
	run := func(args ...string) *gexec.Session {
		GinkgoHelper()
		session, err := gexec.Start(exec.Command(program, args...), GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { session.Kill().Wait() })
		return session
	}
	BeforeAll(func() {
		var err error
		program, err = gexec.Build("../cmd/operator")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(gexec.CleanupBuildArtifacts)

		kubeconfig = filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(clientcmd.WriteToFile(api.Config{
			Clusters:       map[string]*api.Cluster{"x": {Server: account.Host, CertificateAuthorityData: account.CAData}},
			AuthInfos:      map[string]*api.AuthInfo{"x": {Token: account.BearerToken}},
			Contexts:       map[string]*api.Context{"x": {Cluster: "x", AuthInfo: "x"}},
			CurrentContext: "x",
		}, kubeconfig)).To(Succeed())
	})

	It("leads, serves Websites, and exits in peace when it is asked to", func(ctx SpecContext) {
		session := run("-kubeconfig", kubeconfig, "-leader-elect", "-lease-namespace", systemNamespace, "-http", "127.0.0.1:0", "-metrics", "127.0.0.1:0", "-debug", "127.0.0.1:0")
		namespace, err := cluster.Namespace(ctx, "program")
		Expect(err).NotTo(HaveOccurred())
		expectWorld(ctx, create(ctx, siteIn(namespace, 1, "one")), 1, "one")
		expectHealth(ctx, session)
		expectMetrics(ctx, session)
		expectFailing(ctx, session)

		session.Signal(syscall.SIGTERM)
		Eventually(session).Should(gexec.Exit(0))
	})

	DescribeTable("reports a problem in one sentence",
		func(words string, args ...string) {
			session := run(args...)
			Eventually(session).Should(gexec.Exit(1))
			Expect(session.Err).To(gbytes.Say(`^operator: ` + words + `[^\n]*\n$`))
		},
		Entry("no such kubeconfig", `.*no/such/file.*give the path`, "-kubeconfig", "no/such/file"),
		Entry("not an address", `-http: cannot listen on nowhere`, "-kubeconfig", "../testdata/dead.kubeconfig", "-http", "nowhere"),
		Entry("nobody there", `.*https://127\.0\.0\.1:1.*refused`, "-kubeconfig", "../testdata/dead.kubeconfig"),
	)
})

// expectHealth sends the kubelet's requests to the program.
func expectHealth(ctx context.Context, session *gexec.Session) {
	GinkgoHelper()
	address := regexp.MustCompile(`"health server","address":"([^"]+)"`).FindSubmatch(session.Err.Contents())
	Expect(address).NotTo(BeNil())
	var deploy appsv1.Deployment
	data, err := os.ReadFile("../config/manager/deployment.yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.UnmarshalStrict(data, &deploy)).To(Succeed())
	for _, probe := range []*corev1.Probe{deploy.Spec.Template.Spec.Containers[0].LivenessProbe, deploy.Spec.Template.Spec.Containers[0].ReadinessProbe} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(address[1])+probe.HTTPGet.Path, nil)
		Expect(err).NotTo(HaveOccurred())
		request.Close = true // no connection is to be left
		resp, err := http.DefaultClient.Do(request)
		Expect(err).NotTo(HaveOccurred())
		Expect(resp).To(HaveHTTPStatus(http.StatusOK))
		Expect(resp).To(HaveHTTPBody("ok"))
	}
}

// expectFailing asks as a person does through kubectl port-forward.
func expectFailing(ctx context.Context, session *gexec.Session) {
	GinkgoHelper()
	address := regexp.MustCompile(`"debug server","address":"([^"]+)"`).FindSubmatch(session.Err.Contents())
	Expect(address).NotTo(BeNil())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(address[1])+"/debug/failing?controller=website", nil)
	Expect(err).NotTo(HaveOccurred())
	request.Close = true // no connection is to be left
	resp, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	Expect(resp).To(HaveHTTPStatus(http.StatusOK))
	Expect(resp).To(HaveHTTPBody(ContainSubstring(`"total": `)))
}
