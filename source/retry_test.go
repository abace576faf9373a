// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

// failures is a hook that writes down failures.
type failures struct {
	mu   sync.Mutex
	list []string
}

func (f *failures) hook() *hook.Hook {
	return hook.On(func(failed *hook.HandlerFailed) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.list = append(f.list, fmt.Sprintf("%s %s: %v", failed.Source, failed.Object, failed.Err))
	})
}

func (f *failures) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.list
	f.list = nil
	return list
}

// TestS8_Retried: an event whose handler, mapper or predicate fails or panics is retried until it
// succeeds. Other events do not wait for it, and the hook and the state report it.
func TestS8_Retried(t *testing.T) {
	broken := errors.New("broken")
	for what, fail := range map[string]func() error{
		"error": func() error { return broken },
		"panic": func() error { panic("broken") },
	} {
		for _, where := range []string{"handler", "mapper", "predicate"} {
			t.Run(what+" in a "+where, func(t *testing.T) {
				if what == "error" && where == "predicate" {
					t.Skip("a predicate returns no error")
				}
				synctest.Test(t, func(t *testing.T) {
					s, l, f := newSetup(t), &log{}, &failures{}
					defer s.stop()
					var until time.Time
					trouble := func(e handler.Event) error {
						if e.Key().Name == "a" && time.Now().Before(until) {
							return fail()
						}
						return nil
					}
					var src source.Source[name]
					switch where {
					case "handler":
						l.fail = trouble
						src = source.Kind(s.maps, l)
					case "mapper":
						src = source.Kind(s.maps, handler.Map(func(ctx context.Context, m *corev1.ConfigMap) ([]name, error) {
							e := handler.Event{Op: handler.Create, New: m}
							if err := trouble(e); err != nil {
								return nil, err
							}
							return l.Keys(ctx, e)
						}))
					case "predicate":
						src = source.Kind(s.maps, l, handler.Where(func(_, after *corev1.ConfigMap) bool {
							_ = trouble(handler.Event{New: after})
							return true
						}))
					}
					until = time.Now().Add(time.Minute)
					s.put("a=1")
					s.start(src, l, f.hook())
					synced(t, src) // the handler has seen it, if not handled it
					s.put("b=1")
					synctest.Wait()
					testkit.Equal(t, l.take(), "create b ->1", "at first")
					if got := src.Status().State().String(); !strings.HasPrefix(got, "Kind(ConfigMap.v1): synced; the handler failed for 1 event, to be retried: ") || !strings.HasSuffix(got, "broken") {
						t.Errorf("state: %s", got)
					}
					time.Sleep(10 * time.Minute)
					testkit.Equal(t, strings.TrimSuffix(l.take(), " initial"), "create a ->1", "later")
					testkit.Equal(t, src.Status().State().String(), "Kind(ConfigMap.v1): synced")
					told := f.take()
					testkit.Between(t, len(told), 5, 15)
					for _, failure := range told {
						testkit.HasPrefix(t, failure, "Kind(ConfigMap.v1) default/a: ")
						testkit.Contains(t, failure, "broken")
						if what == "panic" && !strings.Contains(failure, "retry_test.go") {
							t.Errorf("no stack: %s", failure)
						}
					}
				})
			})
		}
	}
}

// TestS3_S8_OnePerObject: several failed events of one object are one pending event, from the
// oldest Old to the newest New.
func TestS3_S8_OnePerObject(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *setup)
		want   string
	}{
		{"updates", func(s *setup) { s.put("a=2", "a=3", "a=4") }, "update a 1>4"},
		{"update and delete", func(s *setup) { s.put("a=2"); s.remove("a") }, "update a 1>2, delete a 2>-"},
		{"create and update", func(s *setup) { s.put("b=2", "b=3") }, "create b ->3"},
		{"create and delete", func(s *setup) { s.put("b=2"); s.remove("b") }, "delete b 2>-"},
		{"S3: delete and create", func(s *setup) { s.remove("a"); s.put("a=2") }, "delete a 1>- stale, create a ->2"},
		{"S3: delete, create and update", func(s *setup) { s.remove("a"); s.put("a=2", "a=3") }, "delete a 1>- stale, create a ->3"},
		{"two objects", func(s *setup) { s.put("a=2", "b=2", "a=3") }, "update a 1>3, create b ->2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newSetup(t), &log{}
				defer s.stop()
				s.put("a=1")
				s.follow(l)
				l.take()
				begin := time.Now()
				l.fail = func(handler.Event) error {
					if time.Since(begin) < 50*time.Millisecond {
						return errors.New("failed")
					}
					return nil
				}
				c.change(s)
				synctest.Wait()
				testkit.Equal(t, l.take(), "", "at once")
				time.Sleep(time.Minute)
				testkit.Equal(t, l.take(), c.want)
			})
		})
	}
}

// TestS8_FailsWhileRetried: an event that fails during the retry of an earlier one is merged with
// it. The halves of a replaced object (S3) are delivered once each.
func TestS8_FailsWhileRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a=1")
		s.follow(l)
		l.take()
		begin := time.Now()
		l.fail = func(e handler.Event) error {
			if e.New != nil && e.New.(*corev1.ConfigMap).Data["data"] == "2" && time.Since(begin) >= 100*time.Millisecond {
				time.Sleep(time.Second) // the retry is slow, and fails in the end
			}
			if time.Since(begin) < 10*time.Second {
				return errors.New("failed")
			}
			return nil
		}
		s.put("a=2")
		time.Sleep(500 * time.Millisecond) // within the retry
		s.put("a=3")
		time.Sleep(time.Minute)
		testkit.Equal(t, l.take(), "update a 1>3")
		begin = time.Now()
		l.fail = func(e handler.Event) error {
			if e.New != nil && time.Since(begin) < 10*time.Second || time.Since(begin) < 10*time.Millisecond {
				return errors.New("failed")
			}
			return nil
		}
		s.remove("a")
		s.put("a=4")
		time.Sleep(time.Minute)
		testkit.Equal(t, l.take(), "delete a 3>- stale, create a ->4")
	})
}
