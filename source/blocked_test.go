// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

// waitForever is a handler that blocks until it is released.
func waitForever(release chan struct{}) handler.Handler[name] {
	return handler.Map(func(context.Context, *corev1.ConfigMap) ([]name, error) {
		<-release
		return nil, nil
	})
}

// TestAHandlerThatBlocksIsReported: once. One that is slow, and gets on, is not.
func TestAHandlerThatBlocksIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a", "b", "c")
		release := make(chan struct{})
		told := make(chan hook.HandlerBlocked, 10)
		src := source.Kind(s.maps, waitForever(release))
		s.start(src, l, hook.On(func(b *hook.HandlerBlocked) { told <- *b }))
		for range 2 {
			time.Sleep(4 * time.Second)
			release <- struct{}{}
		}
		synctest.Wait()
		testkit.Len(t, told, 0, "a handler that takes 4 s was reported")
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(told) != 1 {
			t.Fatalf("told %d times", len(told))
		}
		if b := <-told; b.Source != src.String() || b.After != 5*time.Second {
			t.Errorf("told %+v", b)
		}
		close(release)
	})
}

// TestS8_ABlockedHandler: while a handler is blocked, one event of each object waits, and State
// counts it. Then the handler sees the first old and the last new state; a name that has returned
// is a delete and a create (S3).
func TestS8_ABlockedHandler(t *testing.T) {
	for name, of := range map[string]func(s *setup, h handler.Handler[name]) source.Source[name]{
		"kind": func(s *setup, h handler.Handler[name]) source.Source[name] { return source.Kind(s.maps, h) },
		"adopted": func(s *setup, h handler.Handler[name]) source.Source[name] {
			f, informer := s.factory()
			s.t.Cleanup(f.Shutdown)
			ctx, cancel := context.WithCancel(context.Background())
			s.t.Cleanup(cancel)
			f.StartWithContext(ctx)
			return source.Kind(adopted(informer), h)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newSetup(t), &log{}
				defer s.stop()
				s.put("0=", "a=0", "b=old", "c=old")
				src := of(s, l)
				s.start(src, l, nil)
				synced(t, src)
				l.take()
				release := make(chan struct{})
				l.fail = func(handler.Event) error {
					<-release
					return nil
				}
				s.put("0=1")
				time.Sleep(time.Minute)
				for i := range 300 {
					s.put(fmt.Sprintf("a=%d", i+1))
					if i == 100 {
						s.remove("b")
						s.put("b=new")
						s.remove("c")
					}
					synctest.Wait()
				}
				st := src.Status().State()
				if st.Pending != 4 || st.Retrying != 0 { // one in the handler
					t.Errorf("got %s", st)
				}
				close(release)
				synctest.Wait()
				testkit.Equal(t, l.take(), "update 0 >1, update a 0>300, delete b old>-, create b ->new, delete c old>-")
				testkit.Equal(t, src.Status().State().Pending, 0, "after the handler has returned", src.Status().State())
			})
		})
	}
}

// TestC7_AMergedEventHasNoVersion: an event that stands for several changes does not name a
// version, so that it does not count as the key's own write. Other events do.
func TestC7_AMergedEventHasNoVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a=0", "b=0", "c=0")
		s.follow(l)
		l.take()
		release := make(chan struct{})
		l.fail = func(handler.Event) error {
			<-release
			return nil
		}
		s.put("c=1")
		time.Sleep(time.Minute)
		s.put("a=1", "b=1", "a=2")
		synctest.Wait()
		l.mu.Lock()
		l.added = nil
		l.mu.Unlock()
		close(release)
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		named := map[string]bool{}
		for _, o := range l.added {
			named[o.Reason.Object] = o.Reason.ResourceVersion != ""
		}
		if len(named) != 3 || named["default/a"] || !named["default/b"] || !named["default/c"] {
			t.Errorf("got versions %v", named)
		}
	})
}
