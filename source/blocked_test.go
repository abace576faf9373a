// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/source"
)

// waitForever is a handler that blocks until it is released.
func waitForever(release chan struct{}) handler.Handler[name] {
	return handler.Map(func(context.Context, *corev1.ConfigMap) ([]name, error) {
		<-release
		return nil, nil
	})
}

// TestAHandlerThatBlocksIsReported: once, with the function that it is in. One that is slow, and
// gets on, is not.
func TestAHandlerThatBlocksIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a", "b", "c")
		release := make(chan struct{})
		told := make(chan hook.SourceBlocked, 10)
		src := source.Kind(s.maps, waitForever(release))
		s.start(src, l, &hook.Source{HandlerBlocked: func(b hook.SourceBlocked) { told <- b }})
		for range 2 {
			time.Sleep(4 * time.Second)
			release <- struct{}{}
		}
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("a handler that takes 4 s was reported: %+v", <-told)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(told) != 1 {
			t.Fatalf("told %d times", len(told))
		}
		if b := <-told; b.Source != src.String() || !strings.Contains(b.Where, "waitForever") ||
			!strings.Contains(b.Where, "blocked_test.go:") || !strings.Contains(b.Stack, "chan receive") {
			t.Errorf("told %+v", b)
		}
		close(release)
	})
}
