// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package election_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	authentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// plugin is an exec plugin that can hang.
type plugin struct{ dir, kubeconfig string }

func newPlugin() *plugin {
	GinkgoHelper()
	p := &plugin{dir: GinkgoT().TempDir()}
	p.kubeconfig = p.path("kubeconfig")
	text, err := cluster.Kubeconfig()
	Expect(err).NotTo(HaveOccurred())
	cfg, err := clientcmd.Load(text)
	Expect(err).NotTo(HaveOccurred())
	self, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	for name, user := range cfg.AuthInfos {
		Expect(os.WriteFile(p.path(certificate), user.ClientCertificateData, 0o600)).To(Succeed())
		Expect(os.WriteFile(p.path(key), user.ClientKeyData, 0o600)).To(Succeed())
		cfg.AuthInfos[name] = &api.AuthInfo{Exec: &api.ExecConfig{
			APIVersion: authentication.SchemeGroupVersion.String(), Command: self, InteractiveMode: api.NeverExecInteractiveMode,
			Env: []api.ExecEnvVar{{Name: asPlugin, Value: p.dir}},
		}}
	}
	Expect(clientcmd.WriteToFile(*cfg, p.kubeconfig)).To(Succeed())
	Expect(syscall.Mkfifo(p.path(gate), 0o600)).To(Succeed())
	return p
}

func (p *plugin) path(name string) string { return filepath.Join(p.dir, name) }

func (p *plugin) hang() {
	GinkgoHelper()
	Expect(os.WriteFile(p.path(hangs), nil, 0o600)).To(Succeed())
	DeferCleanup(p.mend) // before the operators are killed: a plugin has their output
}

// mend lets the plugin return, now and later.
func (p *plugin) mend() {
	GinkgoHelper()
	if err := os.Remove(p.path(hangs)); !errors.Is(err, fs.ErrNotExist) {
		Expect(err).NotTo(HaveOccurred())
	}
	open, err := os.OpenFile(p.path(gate), os.O_RDWR, 0) // lets readers open it
	Expect(err).NotTo(HaveOccurred())
	Expect(open.Close()).To(Succeed()) // the end of the file
}

var _ = Describe("An operator process whose exec plugin hangs", func() {
	It("reports the loss in time, stands by, and leads again when the plugin returns (L5)", func(ctx SpecContext) {
		r, p := newRace(ctx), newPlugin()
		a := r.start("a", obedient+"=yes", "KUBECONFIG="+p.kubeconfig)
		a.says(ctx, "leads")
		b := r.start("b", obedient+"=yes")
		b.says(ctx, "sees a")
		p.hang()
		b.says(ctx, "leads")
		a.says(ctx, "lost") // the plugin still hangs
		p.mend()
		a.says(ctx, "sees b")
		b.terminate(ctx)
		a.says(ctx, "leads")
		a.terminate(ctx)
	}, SpecTimeout(patience))

	It("ends with an error that names the request if it is stopped (M1, M3)", func(ctx SpecContext) {
		r, p := newRace(ctx), newPlugin()
		a := r.start("a", obedient+"=yes", "KUBECONFIG="+p.kubeconfig)
		a.says(ctx, "leads")
		b := r.start("b", obedient+"=yes")
		p.hang()
		b.says(ctx, "leads")
		a.Terminate()
		Eventually(a.Err).WithContext(ctx).Should(gbytes.Say("a request for the Lease .*/operator has not returned since"))
		Eventually(a.Err).WithContext(ctx).Should(gbytes.Say(`exec\.\(\*roundTripper\)\.RoundTrip`))
		p.mend() // the plugin has the operator's output
		Eventually(a.Session).WithContext(ctx).Should(gexec.Exit(1))
		b.terminate(ctx)
	}, SpecTimeout(patience))
})
