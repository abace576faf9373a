// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// load sends requests at a fixed rate, unless many are unanswered. Each needs the conversion
// webhook, and every second one also the validating webhook.
type load struct {
	lamps     *client.Handle[*unstructured.Unstructured]
	namespace string
	rate      int

	running sync.WaitGroup
	mu      sync.Mutex // guards what follows
	result  Result
	success [2]time.Time  // the last one of reads and updates
	answer  chan struct{} // closed and replaced after an answer
}

func newLoad(c *client.Client, namespace string, rate int) *load {
	return &load{
		lamps: client.ForKind[*unstructured.Unstructured](c, lamps), namespace: namespace, rate: rate,
		result: Result{Classes: map[string]int{}}, answer: make(chan struct{}),
	}
}

// run returns when ctx has ended and all requests have their answers.
func (l *load) run(ctx context.Context) {
	ticker := time.NewTicker(time.Second / time.Duration(l.rate))
	defer ticker.Stop()
	defer l.running.Wait()
	limited, unanswered := context.WithoutCancel(ctx), make(chan struct{}, mostUnanswered)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			select {
			case <-ctx.Done():
				return
			case unanswered <- struct{}{}:
			}
			l.running.Go(func() {
				defer func() { <-unanswered }()
				limited, cancel := context.WithTimeout(limited, longestRequest)
				defer cancel()
				l.request(limited, n)
			})
		}
	}
}

// longestRequest is more than the timeouts of both webhooks, whose errors are more precise.
const longestRequest = 90 * time.Second

// mostUnanswered requests wait for their answers. On a machine that is too slow for the rate, more
// would wait ever longer, and the API server ends a write after 34 seconds.
const mostUnanswered = 40

func (l *load) request(ctx context.Context, n int) {
	name, begun := fmt.Sprint("lamp-", n/2%10), time.Now()
	var err error
	if n%2 == 0 {
		_, err = l.lamps.GetLive(ctx, types.NamespacedName{Namespace: l.namespace, Name: name})
	} else {
		_, err = l.lamps.Apply(ctx, client.UnstructuredConfiguration(lamp(l.namespace, name, n)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		close(l.answer)
		l.answer = make(chan struct{})
	}()
	now := time.Now()
	l.result.Requests++
	l.result.Slowest = max(l.result.Slowest, now.Sub(begun))
	if err != nil {
		l.result.add(begun, err)
		return
	}
	if last := &l.success[n%2]; begun.After(*last) || last.IsZero() {
		l.result.Gap = max(l.result.Gap, gap(*last, begun))
		*last = begun
	}
}

// gap is the time between two requests that succeeded.
func gap(last, next time.Time) time.Duration {
	if last.IsZero() {
		return 0
	}
	return next.Sub(last)
}

// await waits for a number of further answers.
func (l *load) await(ctx context.Context, number int) error {
	for before := -1; ; {
		l.mu.Lock()
		now, answer := l.result.Requests, l.answer
		l.mu.Unlock()
		if before < 0 {
			before = now
		}
		if now-before >= number {
			return nil
		}
		select {
		case <-answer:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// first makes the objects, once the webhooks answer.
func (l *load) first(ctx context.Context) error {
	for n := range 10 {
		for {
			_, err := l.lamps.Apply(ctx, client.UnstructuredConfiguration(lamp(l.namespace, fmt.Sprint("lamp-", n), 0)))
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), err)
			}
			if !apierrors.IsInternalError(err) && !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err) && !strings.Contains(err.Error(), "webhook") {
				return err
			}
			_ = run.Sleep(ctx, 100*time.Millisecond) // a new CRD and new bundles are not observable
		}
	}
	return nil
}
