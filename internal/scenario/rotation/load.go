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

// load sends requests at a fixed rate. Each needs the conversion webhook, and every second one also
// the validating webhook.
type load struct {
	lamps     *client.Handle[*unstructured.Unstructured]
	namespace string
	rate      int

	running sync.WaitGroup
	mu      sync.Mutex // guards what follows
	result  Result
}

// run returns when ctx has ended and all requests have their answers.
func (l *load) run(ctx context.Context) {
	ticker := time.NewTicker(time.Second / time.Duration(l.rate))
	defer ticker.Stop()
	defer l.running.Wait()
	limited := context.WithoutCancel(ctx)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.running.Go(func() {
				limited, cancel := context.WithTimeout(limited, 30*time.Second)
				defer cancel()
				l.request(limited, n)
			})
		}
	}
}

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
	l.result.Requests++
	l.result.Slowest = max(l.result.Slowest, time.Since(begun))
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "x509:") || strings.Contains(err.Error(), "tls:"):
		l.result.Refused++
		l.result.note(begun, err)
	default:
		l.result.Failed++
		l.result.note(begun, err)
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

// Result is what a contestant's users have seen.
type Result struct {
	Contestant string
	Rotations  int // new certificates in the bundles
	Kills      int
	Requests   int // updates and reads
	Refused    int // because of a certificate
	Failed     int // for another reason
	Slowest    time.Duration
	Took       time.Duration
	Errors     []string // the first 20
}

func (r *Result) note(at time.Time, err error) {
	if len(r.Errors) < 20 {
		r.Errors = append(r.Errors, at.UTC().Format("15:04:05.000 ")+err.Error())
	}
}

// Table returns results as Markdown.
func Table(results ...Result) string {
	text := "| certificates | rotations | kills | requests | refused | failed | slowest |\n|---|---|---|---|---|---|---|\n"
	for _, r := range results {
		text += fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %s |\n", r.Contestant, r.Rotations, r.Kills, r.Requests, r.Refused, r.Failed, r.Slowest.Round(time.Millisecond))
	}
	return text
}
