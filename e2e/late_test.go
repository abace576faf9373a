// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

var _ = Describe("A goroutine that a Reconcile leaves behind (C6)", func() {
	It("writes before the Reconcile has returned and is waited for, or is refused", func(ctx SpecContext) {
		// Half of them take a second: the answer to an abandoned request causes no event.
		lateRounds := 12
		if os.Getenv("SETPOINT_FULL") != "" {
			lateRounds = 200
		}
		w := newOwnWrites(ctx)
		maps := w.maps()
		c := w.controller(controller.Options{}, workqueue.Options[types.NamespacedName]{})
		c.Reads(maps.handle)
		var left sync.WaitGroup
		var written, refused, lost atomic.Int64
		for i := range lateRounds {
			name := fmt.Sprint("m", i)
			w.steps = append(w.steps, func(ctx context.Context) error {
				stale := maps.compare(ctx)
				c.Queue().Add(w.key) // as a change by another client may at any time
				begun := make(chan struct{})
				left.Go(func() {
					close(begun)
					// Near the Reconcile's end.
					<-time.After(time.Duration(i) * 400 * time.Microsecond / time.Duration(lateRounds))
					_, err := w.own().Create(ctx, w.configMap(name))
					switch {
					case err == nil:
						written.Add(1)
					case errors.As(err, new(*ledger.LateWriteError)):
						refused.Add(1)
					default:
						lost.Add(1)
					}
				})
				<-begun
				<-time.After(200 * time.Microsecond)
				return stale
			})
		}
		w.start(c)
		w.eventually(ctx, c.Synced())
		w.proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Lag: 5 * time.Millisecond})
		c.Queue().Add(w.key)
		violations := 0
		for range lateRounds {
			if w.next(ctx) != nil {
				violations++
			}
		}
		left.Wait()
		AddReportEntry("late writes", fmt.Sprintf("%d Reconciles: %d writes waited for, %d refused, %d stale", lateRounds, written.Load(), refused.Load(), violations))
		Expect(violations).To(BeZero())
		Expect(lost.Load()).To(BeZero())
		Expect(written.Load()).To(BeNumerically(">", 0))
		Expect(refused.Load()).To(BeNumerically(">", 0))
	}, NodeTimeout(patience))
})
