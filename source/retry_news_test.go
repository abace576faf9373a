// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestS8_NewsIsNotPunished: an event that comes during a successful retry is tried at once, without
// the backoff of the earlier failures.
func TestS8_NewsIsNotPunished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a=1")
		s.follow(l)
		l.take()
		var well atomic.Bool
		trying := make(chan struct{}, 1)
		l.failWith(func(e handler.Event) error {
			switch {
			case e.New.(*corev1.ConfigMap).Data["data"] != "2":
				return nil
			case !well.Load():
				return errors.New("failed")
			}
			trying <- struct{}{}
			time.Sleep(time.Second) // slow, and goes well
			return nil
		})
		s.put("a=2")
		time.Sleep(10 * time.Minute) // the pauses are a minute now
		well.Store(true)
		<-trying
		s.put("a=3")
		time.Sleep(2 * time.Second)
		testkit.Equal(t, l.take(), "update a 1>2, update a 2>3")
	})
}
