// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/setpoint-dev/setpoint/envtest"
)

var (
	cluster *envtest.Cluster
	admin   *kubernetes.Clientset
)

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	cluster, err = envtest.Start(ctx, envtest.Options{Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(cluster.Stop()).To(Succeed()) })
	transport, err := rest.HTTPClientFor(cluster.Config())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(transport.CloseIdleConnections)
	admin, err = kubernetes.NewForConfigAndClient(cluster.Config(), transport)
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(10*time.Minute)) // the control plane is built on first use

// process is a running program.
type process struct {
	cmd   *exec.Cmd
	ended chan error

	mu  sync.Mutex // guards out
	out strings.Builder
}

// startProcess runs the program on a cluster. It is killed at the end of the spec, if it still
// runs.
func startProcess(cfg *rest.Config, flags ...string) *process {
	GinkgoHelper()
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*kubeconfigOf(cfg), kubeconfig)).To(Succeed())
	self, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	p := &process{cmd: exec.Command(self, append([]string{"--kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1:0"}, flags...)...), ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), asMain+"=1")
	stderr, err := p.cmd.StderrPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(p.cmd.Start()).To(Succeed())
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.print(lines.Text())
		}
		p.ended <- p.cmd.Wait()
		close(p.ended)
	})
	DeferCleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended, mostly
		reading.Wait()
	})
	return p
}

func (p *process) print(line string) {
	fmt.Fprintf(GinkgoWriter, "[%d] %s\n", p.cmd.Process.Pid, line)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.WriteString(line + "\n")
}

// printed returns its output so far.
func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// terminate sends it SIGTERM.
func (p *process) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

var serves = regexp.MustCompile(`healthz="(http://[^"]*)/healthz"`)

// get sends it an HTTP request.
func (p *process) get(ctx context.Context, path string) (status int, body string) {
	GinkgoHelper()
	var base []string
	Eventually(func() []string { base = serves.FindStringSubmatch(p.printed()); return base }).WithContext(ctx).ShouldNot(BeNil(), "it says where it serves")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base[1]+path, http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	return resp.StatusCode, string(text)
}

// kubeconfigOf returns a configuration as a kubeconfig.
func kubeconfigOf(cfg *rest.Config) *clientcmdapi.Config {
	c := clientcmdapi.NewConfig()
	c.Clusters["test"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	c.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken}
	c.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	c.CurrentContext = "test"
	return c
}

// holder returns the holder of a Lease, and its last renewal.
func holder(ctx context.Context, name string) (identity string, renewed time.Time) {
	lease, err := admin.CoordinationV1().Leases("kube-system").Get(ctx, name, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return "", time.Time{}
	}
	return *lease.Spec.HolderIdentity, lease.Spec.RenewTime.Time
}
