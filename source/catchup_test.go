// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

var errLate = errors.New("too late")

// catchUp waits for a source for a while at most.
func catchUp(t *testing.T, s any, atMost time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), atMost, errLate)
	defer cancel()
	return s.(interface {
		CatchUp(ctx context.Context) error
	}).CatchUp(ctx)
}

func wantCaughtUp(t *testing.T, s any) {
	t.Helper()
	testkit.Equal(t, catchUp(t, s, time.Hour), nil)
}

func wantNot(t *testing.T, s any, parts ...string) {
	t.Helper()
	err := catchUp(t, s, 5*time.Second)
	for _, part := range parts {
		testkit.ErrorContains(t, err, part)
	}
}

func TestS10_Kind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a")
		src := source.Kind(s.maps, l)
		wantNot(t, src, "does not run yet", errLate.Error())
		s.api.Lag(10 * time.Second)
		l.failWith(func(handler.Event) error {
			time.Sleep(time.Second)
			return nil
		})
		stop := s.start(src, l, nil)
		wantCaughtUp(t, src)
		testkit.Equal(t, l.take(), "create a -> initial", "handled")
		s.put("a=1", "b=1")
		s.remove("b")
		wantNot(t, src, "does not show the write of default/a at 3", errLate.Error())
		wantCaughtUp(t, src)
		testkit.Equal(t, l.take(), "update a >1, create b ->1, delete b 1>-", "handled")
		stop()
		wantNot(t, src, "the source has stopped")
	})
}

// What failed has not been handled, whether it waits to be tried again or is being tried (S8).
func TestS10_FailedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		src := source.Kind(s.maps, l)
		boom := errors.New("boom")
		slow := make(chan struct{})
		var tries atomic.Int64
		l.failWith(func(handler.Event) error {
			if tries.Add(1) > 7 {
				<-slow
				return nil
			}
			return boom
		})
		s.put("a") // before the first list, so that the event is one of it
		s.start(src, l, nil)
		wantNot(t, src, "the handler failed for 1 event", "boom", errLate.Error())
		wantNot(t, src, errLate.Error()) // it is tried again meanwhile
		wantNot(t, src, errLate.Error()) // and is being tried
		if n := tries.Load(); n != 8 {
			t.Fatalf("%d tries", n)
		}
		close(slow)
		wantCaughtUp(t, src)
		testkit.Equal(t, l.take(), "create a -> initial", "handled")
	})
}

// A wait ends when the source does.
func TestS10_StoppedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.api.Lag(time.Hour)
		src := source.Kind(s.maps, l)
		stop := s.start(src, l, nil)
		synctest.Wait()
		s.put("a")
		time.AfterFunc(time.Second, stop)
		testkit.ErrorContains(t, catchUp(t, src, time.Minute), "the source has stopped")
	})
}

func TestS10_AdoptedWithoutACache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		informer := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(s.api.Config()), 0).Core().V1().ConfigMaps().Informer()
		s.run(func(ctx context.Context) error { informer.RunWithContext(ctx); return nil })
		src := source.Kind(adopted(informer), l)
		s.start(src, l, nil)
		wantNot(t, src, "cannot be compared with what the API server has", "cache.Adopt")
	})
}

func TestS10_Channel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &keys{}
		boom := errors.New("boom")
		var fail atomic.Bool
		fail.Store(true)
		c := source.NewChannel("orders", 10, func(_ context.Context, e string) ([]string, error) {
			time.Sleep(time.Second)
			if fail.Load() {
				return nil, boom
			}
			return []string{e}, nil
		})
		c.TrySend("a")
		c.TrySend("b")
		wantNot(t, c, "Channel(orders): not started", errLate.Error())
		stop := run(t, c, q, nil)
		wantNot(t, c, "boom", errLate.Error())
		fail.Store(false)
		wantCaughtUp(t, c)
		if got := q.take(); got != "a b" && got != "b a" {
			t.Errorf("due: %q", got)
		}
		wantCaughtUp(t, c)
		stop()
		c.TrySend("c")
		wantCaughtUp(t, c)
	})
}

func TestS10_Ticker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, polls := &keys{}, make(chan struct{}, 2)
		src := source.Ticker("buckets", time.Minute, func(context.Context) ([]string, error) {
			polls <- struct{}{}
			time.Sleep(10 * time.Second)
			return []string{"a"}, nil
		})
		wantNot(t, src, "Ticker(buckets): not started", errLate.Error())
		stop := run(t, src, q, nil)
		<-polls
		wantCaughtUp(t, src)
		testkit.Equal(t, q.take(), "a", "due")
		wantCaughtUp(t, src) // nothing until the next poll
		testkit.Equal(t, q.take(), "", "due")
		<-polls // it is running
		wantCaughtUp(t, src)
		testkit.Equal(t, q.take(), "a", "due")
		stop()
	})
}
