// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestReadingTheCertificateHoldsUpNoHandshakeForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertificate(&Options{}, slog.New(slog.DiscardHandler), &sync.WaitGroup{})
		testkit.NoError(t, c.refresh())
		time.Sleep(time.Minute)
		// As a file system that hangs.
		c.read.last.Store(&call{began: time.Now(), done: make(chan struct{})})
		for _, takes := range []time.Duration{readLimit, 0, 0} {
			began := time.Now()
			if got, _ := c.look(); got.config == nil || time.Since(began) != takes {
				t.Errorf("the handshake has %v after %s, want after %s", got.config, time.Since(began), takes)
			}
			time.Sleep(2 * time.Second)
		}
		testkit.ErrorContains(t, c.check(), "reading the TLS files has taken 6.1s so far", "the check says")
	})
}
