// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// busy counts concurrent Reconciles.
type busy struct {
	mu         sync.Mutex
	keys       map[string]bool
	most, done int
	twice      bool // of one key
}

// work is a Reconcile that takes a while.
func (b *busy) work(takes time.Duration) controller.Func[string] {
	return func(_ context.Context, key string) (controller.Result, error) {
		b.mu.Lock()
		if b.keys == nil {
			b.keys = map[string]bool{}
		}
		b.twice = b.twice || b.keys[key]
		b.keys[key] = true
		b.most = max(b.most, len(b.keys))
		b.mu.Unlock()
		time.Sleep(takes)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.keys, key)
		b.done++
		return controller.Result{}, nil
	}
}

// take returns how many run now, the most that ran at once since the last take, and how many are
// done.
func (b *busy) take() (now, most, done int) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	most, b.most = b.most, len(b.keys)
	return len(b.keys), most, b.done
}

func keys(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// TestWorkersThatExit: a worker whose Reconcile exits is replaced.
func TestWorkersThatExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exit := make(chan struct{})
		c := warm(t, func(context.Context, string) (controller.Result, error) {
			<-exit
			runtime.Goexit()
			return controller.Result{}, nil
		}, "a", "b")
		end := c.lead(t, time.Hour)
		synctest.Wait()
		exit <- struct{}{}
		synctest.Wait()
		testkit.Equal(t, c.Hired(), 2, "workers")
		close(exit)
		c.PauseKey("a")
		c.PauseKey("b")
		end()
		ok(t, c.cool())
	})
}

// TestLeadsOnce: a second term does not begin during the first.
func TestLeadsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b busy
		c := warm(t, b.work(time.Minute), "a")
		end := c.lead(t, time.Hour)
		synctest.Wait()
		testkit.ErrorContains(t, c.Lead(t.Context(), t.Context()), "already running")
		end()
		ok(t, c.cool())
	})
}

// TestC1_FiftyControllersOfOneWorker: they are independent.
func TestC1_FiftyControllersOfOneWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var all [50]busy
		var stops []func() error
		for i := range all {
			c := newController(all[i].work(time.Second), controller.Options{})
			c.Watch(newSource("keys", keys(20)...))
			stops = append(stops, start(t, c))
		}
		time.Sleep(20 * time.Second)
		for i := range all {
			if now, most, done := all[i].take(); now != 0 || most != 1 || done != 20 || all[i].twice {
				t.Errorf("controller %d: %d run, %d did at once, %d are done", i, now, most, done)
			}
		}
		for _, stop := range stops {
			ok(t, stop())
		}
		testkit.Equal(t, time.Since(began), 20*time.Second)
	})
}

// TestC1_OneControllerOf500Workers: all work at once, each key has one worker, and a stop waits for
// all.
func TestC1_OneControllerOf500Workers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var b busy
		c := newController(b.work(time.Second), controller.Options{Workers: 500})
		c.Watch(newSource("keys", keys(2000)...))
		stop := start(t, c)
		time.Sleep(1500 * time.Millisecond)
		for _, key := range keys(2000) {
			c.Queue().Add(key) // done or in progress, once more
		}
		time.Sleep(time.Second)
		if now, most, done := b.take(); now != 500 || most != 500 || done != 1000 {
			t.Errorf("%d run, %d did at once, %d are done", now, most, done)
		}
		if p := c.Snapshot().Progress; p.Running != 500 || p.Ready != 1500 || p.Longest != 500*time.Millisecond {
			t.Errorf("%+v", p)
		}
		time.Sleep(3 * time.Second)
		ok(t, stop())
		if now, most, done := b.take(); now != 0 || most != 500 || done != 3000 || b.twice || time.Since(began) != 6*time.Second {
			t.Errorf("after %s: %d run, %d did at once, %d are done", time.Since(began), now, most, done)
		}
	})
}
