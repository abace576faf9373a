// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"log/slog"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/hook"
)

// stopping is a world with a controller that creates a ConfigMap, then a Secret, and can be held at
// any point.
type stopping struct {
	*world

	key     types.NamespacedName
	control *controller.Controller[types.NamespacedName]
	point   string            // where the first Reconcile waits, if not in a request
	reached chan struct{}     // is sent to when it does
	goOn    chan struct{}     // is sent to so that it goes on
	ends    chan hook.Outcome // of each Reconcile
	causes  chan error        // why the context of a Reconcile was cancelled
}

func newStopping(ctx context.Context, point string, o controller.Options) *stopping {
	GinkgoHelper()
	s := &stopping{
		world: newWorld(ctx, cluster.Config()), point: point, reached: make(chan struct{}, 1), goOn: make(chan struct{}, 1),
		ends: make(chan hook.Outcome, 10), causes: make(chan error, 10),
	}
	s.key = types.NamespacedName{Namespace: s.namespace, Name: "key"}
	o.Logger = slog.New(slog.DiscardHandler)
	o.Hook = hook.On(func(r *hook.Reconciled) { s.ends <- r.Outcome })
	s.control = controller.New("stopping", controller.Func[types.NamespacedName](s.reconcile), o)
	s.control.Reads(cache.For[*corev1.ConfigMap](s.cache), cache.For[*corev1.Secret](s.cache))
	return s
}

func (s *stopping) reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	defer func() {
		if ctx.Err() != nil {
			s.causes <- context.Cause(ctx)
		}
	}()
	meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
	for _, step := range []func() error{
		func() error { return s.at(ctx, "before its first request") },
		func() error {
			return ignore(client.For[*corev1.ConfigMap](s.client).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}))
		},
		func() error { return s.at(ctx, "between its requests") },
		func() error {
			return ignore(client.For[*corev1.Secret](s.client).Create(ctx, &corev1.Secret{ObjectMeta: meta}))
		},
		func() error { return s.at(ctx, "after its last request") },
	} {
		if err := step(); err != nil && !apierrors.IsAlreadyExists(err) {
			return controller.Result{}, err
		}
	}
	return controller.Result{}, nil
}

// at waits, once, if this is the point.
func (s *stopping) at(ctx context.Context, point string) error {
	if s.point != point {
		return nil
	}
	s.point = ""
	s.reached <- struct{}{}
	select {
	case <-s.goOn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// made checks that nothing was lost.
func (s *stopping) made(ctx context.Context) {
	GinkgoHelper()
	_, err := s.direct.CoreV1().ConfigMaps(s.namespace).Get(ctx, s.key.Name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = s.direct.CoreV1().Secrets(s.namespace).Get(ctx, s.key.Name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// stopPoints are the points of a running Reconcile. Points within a request have a rule that holds
// it.
var stopPoints = []struct {
	name string
	rule fault.Rule
}{
	{"before its first request", fault.Rule{}},
	{"while its first request is on its way", fault.Rule{Match: fault.Match{Verbs: []string{"create"}, Resources: []string{"configmaps"}}, Hold: true, Times: 1}},
	{"while its first answer is on its way", fault.Rule{Match: fault.Match{Verbs: []string{"create"}, Resources: []string{"configmaps"}}, Freeze: true, Times: 1}},
	{"between its requests", fault.Rule{}},
	{"while its last request is on its way", fault.Rule{Match: fault.Match{Verbs: []string{"create"}, Resources: []string{"secrets"}}, Hold: true, Times: 1}},
	{"while its last answer is on its way", fault.Rule{Match: fault.Match{Verbs: []string{"create"}, Resources: []string{"secrets"}}, Freeze: true, Times: 1}},
	{"after its last request", fault.Rule{}},
}

var errTermOver = errors.New("the term is over")

// C8
var _ = Describe("A stop", func() {
	for _, point := range stopPoints {
		// running starts a Reconcile and waits until it is at the point. release lets it continue.
		running := func(ctx context.Context, o controller.Options) (s *stopping, arrived func(), release func()) {
			s = newStopping(ctx, point.name, o)
			if !point.rule.Hold && !point.rule.Freeze {
				return s, func() {
					GinkgoHelper()
					Eventually(ctx, s.reached).Should(Receive())
				}, func() { s.goOn <- struct{}{} }
			}
			held := s.proxy.Add(point.rule)
			return s, func() {
				GinkgoHelper()
				Expect(held.WaitHeld(ctx, 1)).To(Succeed())
			}, held.Remove
		}
		lead := func(s *stopping) (stop context.CancelFunc, lose context.CancelCauseFunc, ended chan error) {
			take, stop := context.WithCancel(s.ctx)
			work, lose := context.WithCancelCause(s.ctx)
			ended = make(chan error, 1)
			s.running.Go(func() { ended <- s.control.Lead(take, work) })
			return stop, lose, ended
		}
		warm := func(s *stopping) {
			s.start()
			s.running.Go(func() { Expect(s.control.Warm(s.ctx)).To(Succeed()) })
		}

		It("waits for a Reconcile "+point.name, func(ctx SpecContext) {
			s, arrived, release := running(ctx, controller.Options{})
			warm(s)
			stop, _, ended := lead(s)
			s.control.Queue().Add(s.key)
			arrived()
			stop()
			other := types.NamespacedName{Namespace: s.namespace, Name: "other"}
			s.control.Queue().Add(other)
			Expect(ended).NotTo(Receive())
			release()
			Eventually(ctx, ended).Should(Receive(BeNil()))
			Expect(s.ends).To(Receive(Equal(hook.Succeeded)))
			Expect(s.causes).NotTo(Receive())
			s.made(ctx)
			Expect(s.ends).NotTo(Receive(), "a key was taken after the stop")
			state, _ := s.control.Queue().Lookup(other)
			Expect(state.State.String()).To(Equal("ready"))
			_, known := s.control.Queue().Lookup(s.key)
			Expect(known).To(BeFalse())
		}, NodeTimeout(patience))

		It("that does not wait any longer loses nothing of a Reconcile "+point.name, func(ctx SpecContext) {
			s, arrived, release := running(ctx, controller.Options{})
			warm(s)
			stop, lose, ended := lead(s)
			s.control.Queue().Add(s.key)
			arrived()
			stop()
			lose(errTermOver)
			Eventually(ctx, ended).Should(Receive(BeNil()))
			Expect(s.ends).To(Receive(Equal(hook.Interrupted)))
			Expect(s.causes).To(Receive(MatchError(errTermOver)))
			state, known := s.control.Queue().Lookup(s.key)
			Expect(known).To(BeTrue())
			Expect([]any{state.State.String(), state.Attempts}).To(Equal([]any{"ready", 0}))
			release()
			By("the next term")
			stop, _, ended = lead(s)
			Eventually(ctx, s.ends).Should(Receive(Equal(hook.Succeeded)))
			s.made(ctx)
			stop()
			Eventually(ctx, ended).Should(Receive(BeNil()))
			_, known = s.control.Queue().Lookup(s.key)
			Expect(known).To(BeFalse())
		}, NodeTimeout(patience))

		It("by Run ends when the grace time is over, for a Reconcile "+point.name, func(ctx SpecContext) {
			s, arrived, _ := running(ctx, controller.Options{Grace: 50 * time.Millisecond})
			run, stop := context.WithCancel(s.ctx)
			defer stop()
			ended := make(chan error, 1)
			s.start()
			s.running.Go(func() { ended <- s.control.Run(run) })
			s.control.Queue().Add(s.key)
			arrived()
			stop()
			Eventually(ctx, ended).Should(Receive(BeNil()))
			Expect(s.ends).To(Receive(Equal(hook.Interrupted)))
			Expect(s.causes).To(Receive(MatchError(ContainSubstring("the grace time of 50ms is over"))))
		}, NodeTimeout(patience))
	}
})
