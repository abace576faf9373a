// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package election_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// operator is a process that runs operate.
type operator struct {
	*gexec.Session
	lines io.Writer
}

// start starts an operator of the race.
func (r *race) start(identity string, env ...string) *operator {
	GinkgoHelper()
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(cluster.WriteKubeconfig(kubeconfig)).To(Succeed())
	self, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, asOperator+"="+identity, namespaced+"="+r.namespace)
	cmd.Env = append(cmd.Env, env...)
	// If the tests are killed, the system wakes and ends it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	session, err := gexec.Start(cmd, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Kill().Wait(patience) })
	return &operator{session, stdin}
}

// says waits for the operator's next report.
func (o *operator) says(ctx context.Context, what string) {
	GinkgoHelper()
	Eventually(o.Out).WithContext(ctx).Should(gbytes.Say(what))
}

// write makes the operator write once, as soon as it leads.
func (o *operator) write() {
	GinkgoHelper()
	_, err := io.WriteString(o.lines, "\n")
	Expect(err).NotTo(HaveOccurred())
}

// suspend stops the process, and returns when it has stopped.
func (o *operator) suspend() {
	GinkgoHelper()
	Expect(o.Command.Process.Signal(syscall.SIGSTOP)).To(Succeed())
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(o.Command.Process.Pid, &status, syscall.WUNTRACED, nil)
		if !errors.Is(err, syscall.EINTR) {
			Expect(err).NotTo(HaveOccurred())
			break
		}
	}
	Expect(status.Stopped()).To(BeTrue(), "it has ended")
}

func (o *operator) resume() {
	GinkgoHelper()
	Expect(o.Command.Process.Signal(syscall.SIGCONT)).To(Succeed())
}

// terminate stops the operator like a cluster does.
func (o *operator) terminate(ctx context.Context) {
	GinkgoHelper()
	o.Terminate()
	Eventually(o.Session).WithContext(ctx).Should(gexec.Exit(0))
}

// history is the stored versions of one kind, in order, each with its writer or holder.
type history struct {
	watch.Interface
	who func(watch.Event) string
}

type entry struct {
	version uint64
	who     string
}

// until returns the stored versions up to a version.
func (h *history) until(ctx context.Context, last metav1.Object) (all []entry) {
	GinkgoHelper()
	for {
		var e watch.Event
		Eventually(ctx, h.ResultChan()).Should(Receive(&e))
		version, err := strconv.ParseUint(e.Object.(metav1.Object).GetResourceVersion(), 10, 64)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, entry{version, h.who(e)})
		if e.Object.(metav1.Object).GetResourceVersion() == last.GetResourceVersion() {
			return all
		}
	}
}

var _ = Describe("An operator process that is suspended for longer than its Lease", func() {
	It("stands by when it wakes, writes nothing, and leads again later (L2, L5)", func(ctx SpecContext) {
		r := newRace(ctx)
		maps, leases := r.direct.CoreV1().ConfigMaps(r.namespace), r.direct.CoordinationV1().Leases(r.namespace)
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		wrote := &history{who: func(e watch.Event) string { return e.Object.(*corev1.ConfigMap).Data["by"] }}
		wrote.Interface, err = maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=config"})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(wrote.Stop)
		held := &history{who: func(e watch.Event) string { return *e.Object.(*coordinationv1.Lease).Spec.HolderIdentity }}
		held.Interface, err = leases.Watch(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(held.Stop)

		a := r.start("a")
		a.says(ctx, "leads")
		a.write()
		a.says(ctx, "wrote")
		b := r.start("b")
		b.says(ctx, "sees a")
		a.suspend()
		a.write() // it reads that when it wakes
		b.says(ctx, "leads")
		b.write()
		b.says(ctx, "wrote")
		a.resume()
		a.says(ctx, "refused: .*the fence")
		a.says(ctx, "lost")
		a.says(ctx, "sees b")
		b.write()
		b.says(ctx, "wrote")
		b.terminate(ctx)
		a.says(ctx, "leads")
		a.write()
		a.says(ctx, "wrote")
		a.terminate(ctx)

		config, err := maps.Get(ctx, "config", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		lease, err := leases.Get(ctx, "operator", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		holders := held.until(ctx, lease)
		var writers []string
		for _, w := range wrote.until(ctx, config) {
			if w.who == "" {
				continue // made by the test
			}
			next := slices.IndexFunc(holders, func(h entry) bool { return h.version > w.version })
			Expect(holders[next-1].who).To(Equal(w.who), "the holder when version %d was written", w.version)
			writers = append(writers, w.who)
		}
		Expect(slices.Compact(writers)).To(Equal([]string{"a", "b", "a"}))
	}, SpecTimeout(patience))

	It("exits with an error if its work does not stop (L5)", func(ctx SpecContext) {
		r := newRace(ctx)
		a := r.start("a", stubborn+"=yes")
		a.says(ctx, "leads")
		b := r.start("b", stubborn+"=yes")
		b.says(ctx, "sees a")
		a.suspend()
		b.says(ctx, "leads")
		a.resume()
		a.says(ctx, "lost")
		Eventually(a.Session).WithContext(ctx).Should(gexec.Exit(1))
		Expect(a.Err).To(gbytes.Say("the Lease .*/operator was lost, and the work under it has not stopped"))
	}, SpecTimeout(patience))
})
