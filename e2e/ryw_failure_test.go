// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// rywRounds is the environment variable with the number of rounds of each scenario in this file.
// One round in twenty has the reported timing; the others are faster.
const rywRounds = "SETPOINT_RYW_ROUNDS"

// pace is the timing of one round.
type pace struct{ outage, late, touch time.Duration }

var (
	literal = pace{outage: 2500 * time.Millisecond, late: 1500 * time.Millisecond, touch: 100 * time.Millisecond}
	quick   = pace{outage: 600 * time.Millisecond, late: 400 * time.Millisecond, touch: 20 * time.Millisecond}
)

// rounds plays a scenario repeatedly, several concurrently, and reports the failures.
func rounds(ctx context.Context, play func(ctx context.Context, p pace, n int) error) {
	GinkgoHelper()
	const atOnce = 4
	all := setting(rywRounds, 1, 200)
	wrong, next := make(chan error, all), atomic.Int64{}
	var players sync.WaitGroup
	for range min(atOnce, all) {
		players.Go(func() {
			for n := int(next.Add(1)) - 1; n < all; n = int(next.Add(1)) - 1 {
				p := quick
				if n%20 == 19 {
					p = literal
				}
				if err := play(ctx, p, n); err != nil {
					wrong <- fmt.Errorf("round %d: %w", n, err)
				}
			}
		})
	}
	players.Wait()
	close(wrong)
	var errs []string
	for err := range wrong {
		errs = append(errs, err.Error())
	}
	text := fmt.Sprintf("%s: %d rounds, %d violations\n", CurrentSpecReport().LeafNodeText, all, len(errs))
	GinkgoWriter.Print(text)
	if all > 1 {
		fmt.Fprint(os.Stderr, text)
	}
	Expect(errs).To(BeEmpty())
}

// C6
var _ = Describe("Read your writes while an informer fails", func() {
	for _, heeds := range []bool{true, false} {
		operator := map[bool]string{true: "returns", false: "ignores"}[heeds]
		It("a write is not forgotten when its informer fails before it shows it, by an operator that "+operator+" Stale", func(ctx SpecContext) {
			rounds(ctx, func(ctx context.Context, p pace, _ int) error { return forgetful(ctx, p, heeds) })
		}, NodeTimeout(20*time.Minute))
	}

	It("keys that return Stale wait for the informer, without backoff, and run when it is back", func(ctx SpecContext) {
		rounds(ctx, parked)
	}, NodeTimeout(20*time.Minute))

	It("keys that returned Stale in an outage are done when Idle returns nil", func(ctx SpecContext) {
		rounds(ctx, idleAfterOutage)
	}, NodeTimeout(30*time.Minute))

	It("a controller that replaces a removed one sees the writes of the removed one", func(ctx SpecContext) {
		rounds(ctx, replaced)
	}, NodeTimeout(20*time.Minute))
})

// forgetful breaks the watch of Secrets before it shows the created Secret. Watches are refused for
// some time, and the first event of the next one is late. Meanwhile the key is due repeatedly.
func forgetful(ctx context.Context, p pace, heeds bool) (err error) {
	m, err := newMaker(ctx, "maker", heeds)
	if err != nil {
		return err
	}
	defer m.end(&err)
	secrets := fault.Match{Verbs: []string{"watch", "list"}, Resources: []string{"secrets"}, Namespace: m.namespace}
	var frozen *fault.Fault
	m.before = func() { frozen = m.proxy.Add(fault.Rule{Match: secrets, Freeze: true}) }
	c := m.controller()
	m.manager.Add(c)
	m.run(ctx)
	if err := m.parent(ctx, "one"); err != nil {
		return err
	}
	if err := receive(ctx, m.made); err != nil {
		return err
	}
	refused := m.proxy.Add(fault.Rule{Match: secrets, Refuse: apierrors.NewInternalError(fmt.Errorf("refused"))})
	m.proxy.Cut(secrets)
	frozen.Remove()
	m.late.Store(int64(p.late))
	for began := time.Now(); time.Since(began) < p.outage; lapse(ctx, p.touch) {
		if err := m.touch(ctx, "one"); err != nil {
			return err
		}
	}
	refused.Remove()
	// An informer tries within a second.
	for began := time.Now(); time.Since(began) < p.late+time.Second; lapse(ctx, p.touch) {
		if err := m.touch(ctx, "one"); err != nil {
			return err
		}
	}
	if err := m.manager.Idle(ctx); err != nil {
		return err
	}
	return m.oneEach(ctx)
}

// parked lets many keys find an informer failing.
func parked(ctx context.Context, p pace, _ int) (err error) {
	m, err := newMaker(ctx, "maker", true)
	if err != nil {
		return err
	}
	defer m.end(&err)
	const keys = 50
	c := m.controller()
	m.manager.Add(c)
	m.run(ctx)
	for n := range keys {
		if err := m.parent(ctx, fmt.Sprint("key-", n)); err != nil {
			return err
		}
	}
	if err := m.manager.Idle(ctx); err != nil {
		return err
	}
	m.log.begins()
	retried := m.retried.Load()
	secrets := fault.Match{Verbs: []string{"watch", "list"}, Resources: []string{"secrets"}, Namespace: m.namespace}
	refused := m.proxy.Add(fault.Rule{Match: secrets, Refuse: apierrors.NewInternalError(fmt.Errorf("refused"))})
	m.proxy.Cut(secrets)
	if err := refused.WaitHits(ctx, 1); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < p.outage; lapse(ctx, p.touch) {
		for n := range keys {
			if err := m.touch(ctx, fmt.Sprint("key-", n)); err != nil {
				return err
			}
		}
	}
	seen := m.sawStale.Load()
	m.complete.Store(0)
	refused.Remove()
	for m.complete.Load() < keys { // each has something to do: it was touched
		if err := m.quiet(ctx); err != nil {
			return err
		}
	}
	lines, of := m.log.worst()
	switch {
	case seen == 0:
		return fmt.Errorf("no Reconcile has seen Stale")
	case m.retried.Load() > retried:
		return fmt.Errorf("keys were retried %d times with a backoff", m.retried.Load()-retried)
	case lines >= 200:
		return fmt.Errorf("%d log lines: %v", lines, of)
	}
	return m.oneEach(ctx)
}

// idleAfterOutage lets a key return Stale for so long that a backoff would exceed what Idle waits
// for. Idle once returned nil then, while the key's object was missing, or wrong, for a minute and
// more.
func idleAfterOutage(ctx context.Context, _ pace, _ int) (err error) {
	m, err := newMaker(ctx, "maker", true)
	if err != nil {
		return err
	}
	defer m.end(&err)
	m.manager.Add(m.controller())
	m.run(ctx)
	if err := m.manager.Idle(ctx); err != nil {
		return err
	}
	secrets := fault.Match{Verbs: []string{"watch", "list"}, Resources: []string{"secrets"}, Namespace: m.namespace}
	refused := m.proxy.Add(fault.Rule{Match: secrets, Refuse: apierrors.NewInternalError(fmt.Errorf("refused"))})
	m.proxy.Cut(secrets)
	if err := refused.WaitHits(ctx, 1); err != nil {
		return err
	}
	if err := m.parent(ctx, "one"); err != nil {
		return err
	}
	lapse(ctx, 3*time.Second)
	refused.Remove()
	if err := m.manager.Idle(ctx); err != nil {
		return err
	}
	return m.oneEach(ctx)
}

// replaced removes the controller that has created a Secret before the Secret is shown, and adds
// another.
func replaced(ctx context.Context, p pace, _ int) (err error) {
	m, err := newMaker(ctx, "maker", false)
	if err != nil {
		return err
	}
	defer m.end(&err)
	m.proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}, Resources: []string{"secrets"}, Namespace: m.namespace}, Lag: p.late})
	first := m.controller()
	m.manager.Add(first)
	m.run(ctx)
	if err := m.parent(ctx, "one"); err != nil {
		return err
	}
	if err := receive(ctx, m.made); err != nil {
		return err
	}
	if err := m.manager.Remove(ctx, first); err != nil {
		return err
	}
	m.manager.Add(m.controller())
	if err := m.manager.Idle(ctx); err != nil {
		return err
	}
	return m.oneEach(ctx)
}

// lateWatch delays the first event of each watch of Secrets, but not the header of the answer.
type lateWatch struct {
	base  http.RoundTripper
	delay *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (l lateWatch) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.base.RoundTrip(r)
	d := time.Duration(l.delay.Load())
	if err == nil && d > 0 && strings.HasSuffix(r.URL.Path, "/secrets") && r.URL.Query().Get("watch") != "" {
		resp.Body = &lateBody{ReadCloser: resp.Body, ctx: r.Context(), delay: d}
	}
	return resp, err
}

type lateBody struct {
	io.ReadCloser

	ctx   context.Context //nolint:containedctx // of one request
	delay time.Duration
	once  sync.Once
}

// Read implements io.Reader.
func (b *lateBody) Read(p []byte) (int, error) {
	b.once.Do(func() { lapse(b.ctx, b.delay) })
	return b.ReadCloser.Read(p)
}

func receive(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// oneEach checks that each parent has exactly one Secret.
func (m *maker) oneEach(ctx context.Context) error {
	parents, err := m.direct.CoreV1().ConfigMaps(m.namespace).List(ctx, metav1.ListOptions{LabelSelector: isParent})
	if err != nil {
		return err
	}
	secrets, err := m.direct.CoreV1().Secrets(m.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	has := map[types.UID]int{}
	for i := range secrets.Items {
		has[metav1.GetControllerOf(&secrets.Items[i]).UID]++
	}
	for i := range parents.Items {
		if n := has[parents.Items[i].UID]; n != 1 {
			return fmt.Errorf("%s has %d Secrets; %d Reconciles, %d with Stale", parents.Items[i].Name, n, m.starts.Load(), m.sawStale.Load())
		}
	}
	return nil
}
