// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package testkit has what the tests of several packages share.
//
// A check compares what a test got with what it wants, on one line, and the test goes on. A failure
// message has one fact: the source of the checked expression, its value and the wanted one. Further
// arguments name the case:
//
//	testkit.Equal(t, q.Len(), 3, name, "after the drain")
//	// a slow worker: after the drain: q.Len() is 4, want 3
//
// We do not use Gomega here. Its checks end the test unless they are wrapped, they need an object
// for each test, and their messages take four lines without the expression.
package testkit

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Start calls run in another goroutine. The returned function cancels the context, waits for run
// and fails the test if run returned an error. Further calls of it do nothing.
func Start(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { ended <- run(ctx) })
	return sync.OnceFunc(func() {
		t.Helper()
		cancel()
		running.Wait()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Pass lets time pass in a synctest bubble, and then everything happen that is due.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Buffer is a strings.Builder for several goroutines.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
