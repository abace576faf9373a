// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/workqueue"
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

// TestSetWorkers: before the start, during a term and between terms. Additional workers begin at
// once. Surplus ones leave after their key, or at once without one.
func TestSetWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b busy
		c := warm(t, b.work(time.Minute), keys(11)...) // with 2 workers
		ok(t, c.SetWorkers(3))
		end := c.lead(t, time.Hour)
		want := func(now, done, hired int) {
			t.Helper()
			if n, _, d := b.take(); n != now || d != done || c.Hired() != hired {
				t.Errorf("%d run, %d are done, %d are hired; want %d, %d, %d", n, d, c.Hired(), now, done, hired)
			}
		}
		want(3, 0, 3)
		time.Sleep(time.Second)
		ok(t, c.SetWorkers(5))
		want(5, 0, 5)
		ok(t, c.SetWorkers(2))
		want(5, 0, 5) // they are at work
		time.Sleep(time.Minute - time.Second)
		want(2, 3, 2) // the three surplus ones have left
		time.Sleep(time.Minute)
		ok(t, c.SetWorkers(4))
		time.Sleep(10 * time.Minute)
		want(0, 11, 4)
		ok(t, c.SetWorkers(1))
		want(0, 11, 1) // idle ones leave at once
		for _, n := range []int{0, -1} {
			if err := c.SetWorkers(n); err == nil || !strings.Contains(err.Error(), `controller "test"`) || !strings.Contains(err.Error(), "Pause") {
				t.Errorf("%d workers: %v", n, err)
			}
		}
		end()
		want(0, 11, 0)
		ok(t, c.SetWorkers(4))
		want(0, 11, 0)
		end = c.lead(t, time.Hour)
		c.Queue().Add("next")
		want(1, 11, 4)
		end()
		want(0, 12, 0)
		ok(t, c.cool())
		if b.twice {
			t.Error("a key was with two workers")
		}
	})
}

// TestSetWorkers_IdleOnesLeave before busy ones, whatever their age.
func TestSetWorkers_IdleOnesLeave(t *testing.T) {
	for _, quick := range keys(3) {
		synctest.Test(t, func(t *testing.T) {
			c := newController(func(_ context.Context, key string) (controller.Result, error) {
				time.Sleep(time.Second) // each has a worker
				if key != quick {
					time.Sleep(time.Minute)
				}
				return controller.Result{}, nil
			}, controller.Options{Workers: 3})
			c.Watch(newSource("keys", keys(3)...))
			stop := start(t, c)
			time.Sleep(2 * time.Second)
			ok(t, c.SetWorkers(2))
			synctest.Wait()
			if n := c.Hired(); n != 2 {
				t.Errorf("%d are hired, want the one without a key gone", n)
			}
			ok(t, stop())
		})
	}
}

// TestSetWorkers_NeverMore than allowed run, however often the number changes meanwhile.
func TestSetWorkers_NeverMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b busy
		c := newController(b.work(time.Second), controller.Options{Workers: 8})
		c.Watch(newSource("keys", keys(500)...))
		stop := start(t, c)
		for i := range 40 {
			time.Sleep(300 * time.Millisecond)
			n := 1 + (i*5)%8
			ok(t, c.SetWorkers(8))
			ok(t, c.SetWorkers(n))
			ok(t, c.SetWorkers(8))
			if now, most, _ := b.take(); now > 8 || most > 8 {
				t.Fatalf("%d run, and %d did", now, most)
			}
		}
		ok(t, c.SetWorkers(3))
		time.Sleep(2 * time.Second)
		b.take()
		time.Sleep(3 * time.Second)
		if now, most, _ := b.take(); now != 3 || most != 3 || c.Hired() != 3 {
			t.Errorf("%d run, and %d did, of %d, want 3", now, most, c.Hired())
		}
		ok(t, c.SetWorkers(8))
		time.Sleep(10 * time.Minute)
		if now, most, done := b.take(); now != 0 || most != 8 || done != 500 || b.twice {
			t.Errorf("%d run, %d did at once, %d are done", now, most, done)
		}
		ok(t, stop())
	})
}

// TestSetWorkers_ManyAtOnce: it is safe for concurrent use, while keys come and go and the term
// ends.
func TestSetWorkers_ManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b busy
		c := warm(t, b.work(time.Millisecond))
		go func() {
			for range c.settled { // drain
			}
		}()
		defer close(c.settled)
		var callers sync.WaitGroup
		end := c.lead(t, time.Hour)
		for i := range 4 {
			callers.Go(func() {
				for n := range 100 {
					ok(t, c.SetWorkers(1+(n*(i+3))%20))
					c.Queue().Add(fmt.Sprint(n))
					time.Sleep(time.Duration(n*i%5) * time.Millisecond)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		end()
		end = c.lead(t, time.Hour)
		callers.Wait()
		ok(t, c.SetWorkers(7))
		time.Sleep(time.Minute)
		if now, _, done := b.take(); now != 0 || done < 100 || c.Hired() != 7 || b.twice || c.TheQueue().Len() != (workqueue.Len{}) {
			t.Errorf("%d run, %d are done, %d are hired, %v", now, done, c.Hired(), c.TheQueue().Len())
		}
		end()
		ok(t, c.cool())
	})
}

// TestWorkersThatExit: a worker whose Reconcile exits is replaced, unless it is surplus.
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
		if n := c.Hired(); n != 2 {
			t.Errorf("%d workers, want another for the one that is gone", n)
		}
		ok(t, c.SetWorkers(1))
		exit <- struct{}{}
		synctest.Wait()
		if n := c.Hired(); n != 1 {
			t.Errorf("%d workers, want 1", n)
		}
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
		if err := c.Lead(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), "already running") {
			t.Errorf("got %v", err)
		}
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
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("it took %s", took)
		}
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

// TestC5_GoexitBesideOneThatIsToLeave: the last worker is replaced, although a surplus one that
// never leaves is still there.
func TestC5_GoexitBesideOneThatIsToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var others atomic.Int64
		c := newController(func(_ context.Context, key string) (controller.Result, error) {
			switch key {
			case "hangs":
				<-hang
			case "exits":
				time.Sleep(time.Second)
				runtime.Goexit()
			default:
				others.Add(1)
			}
			return controller.Result{}, nil
		}, controller.Options{})
		stop := start(t, c)
		c.Queue().Add("hangs")
		time.Sleep(time.Millisecond)
		ok(t, c.SetWorkers(2))
		c.Queue().Add("exits")
		time.Sleep(time.Millisecond)
		ok(t, c.SetWorkers(1)) // the first leaves, in theory
		time.Sleep(500 * time.Millisecond)
		c.Queue().Add("another")
		time.Sleep(time.Minute)
		if others.Load() != 1 {
			t.Error("no worker is left")
		}
		close(hang)
		ok(t, stop())
	})
}
