// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestResync: each object comes again at the handle's interval, ±10 %, as an update without a
// change, with class Background. It does so only between the source's sync and its end.
func TestResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		s.maps = cache.ForScope[*corev1.ConfigMap](s.cache, cache.Scope{Resync: time.Minute})
		s.put("a=1", "b=1")
		src := source.Kind(s.maps, l)
		stop := s.start(src, l, nil)
		synced(t, src)
		l.take()
		l.takeAdded()
		time.Sleep(53 * time.Second)
		testkit.Equal(t, l.take(), "", "too early")
		time.Sleep(14 * time.Second)
		got := strings.Split(l.take(), ", ")
		slices.Sort(got)
		testkit.SlicesEqual(t, got, []string{"update a 1>1", "update b 1>1"})
		for _, how := range l.takeAdded() {
			testkit.Equal(t, how.Class, workqueue.Background)
		}
		s.remove("a")
		s.put("b=2")
		time.Sleep(23 * time.Minute)
		l.take()
		time.Sleep(24 * time.Minute)
		testkit.Between(t, strings.Count(l.take(), "update b 2>2"), 21, 27)
		stop()
		time.Sleep(24 * time.Minute)
		testkit.Equal(t, l.take(), "", "after the end")
		s.stop()
	})
}

// TestS8_ResyncAndFailures: a resync that fails is retried. It neither replaces an earlier failed
// change nor delays a later one.
func TestS8_ResyncAndFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.maps = cache.ForScope[*corev1.ConfigMap](s.cache, cache.Scope{Resync: time.Hour})
		s.put("a=1")
		src := s.follow(l)
		l.take()
		began := time.Now()
		l.failWith(func(handler.Event) error {
			if time.Since(began) < 3*time.Hour {
				return errors.New("failed")
			}
			return nil
		})
		time.Sleep(90 * time.Minute) // a resync has failed
		s.put("a=2")
		time.Sleep(time.Hour) // and another
		testkit.Equal(t, src.Status().State().Retrying, 1)
		testkit.NotEqual(t, src.Status().State().Failure, nil)
		time.Sleep(45 * time.Minute)
		if got := l.take(); got != "update a 1>2, update a 2>2" && got != "update a 1>2" {
			t.Errorf("got %s", got)
		}
	})
}

// TestS8_LaterEventsKeepTheOrder: an event that comes while an earlier one of its object waits for
// a retry is tried at once, merged with it. The handler sees changes in order and loses no state.
func TestS8_LaterEventsKeepTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a=1")
		src := s.follow(l)
		l.take()
		l.failWith(func(e handler.Event) error { // it cannot cope with 2
			if e.New != nil && e.New.(*corev1.ConfigMap).Data["data"] == "2" {
				return errors.New("failed")
			}
			return nil
		})
		s.put("a=2")
		synctest.Wait()
		testkit.Equal(t, l.take(), "", "2 was handled")
		s.put("a=3")
		synctest.Wait()
		if got := l.take(); got != "update a 1>3" { // at once
			t.Errorf("got %s", got)
		}
		s.put("a=2")
		synctest.Wait()
		s.put("b=1") // others pass
		s.remove("a")
		synctest.Wait()
		if got := l.take(); got != "create b ->1" { // the update from 3 to 2 fails still
			t.Errorf("got %s", got)
		}
		l.failWith(nil)
		time.Sleep(time.Minute)
		testkit.Equal(t, l.take(), "update a 3>2, delete a 2>-")
		testkit.Equal(t, src.Status().State().Retrying, 0, src.Status().State())
	})
}

// TestS8_WhatComesDuringATry: an event that comes during a try of the same object is delivered
// after it, in success and failure.
func TestS8_WhatComesDuringATry(t *testing.T) {
	for name, succeeds := range map[string]bool{"succeeds": true, "fails": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newSetup(t), &log{}
				defer s.stop()
				s.follow(l)
				var tries atomic.Int32
				l.failWith(func(handler.Event) error {
					switch tries.Add(1) {
					case 1:
						return errors.New("failed")
					case 2: // a retry, off the informer's goroutine
						time.Sleep(time.Second)
						if !succeeds {
							return errors.New("failed")
						}
					}
					return nil
				})
				s.put("a=1")
				time.Sleep(500 * time.Millisecond)
				s.put("a=2", "b=1") // the informer's goroutine does not wait
				synctest.Wait()
				testkit.Equal(t, l.take(), "create b ->1", "during the try")
				time.Sleep(time.Minute)
				want := "create a ->1, update a 1>2"
				if !succeeds {
					want = "create a ->2"
				}
				testkit.Equal(t, l.take(), want)
			})
		})
	}
}

// TestS8_ResyncBringsNothingBack: an object that is deleted during a resync is not an update after
// its delete.
func TestS8_ResyncBringsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.maps = cache.ForScope[*corev1.ConfigMap](s.cache, cache.Scope{Resync: time.Minute})
		s.put("a=1", "b=1")
		s.follow(l)
		l.take()
		first := make(chan string, 10)
		l.failWith(func(e handler.Event) error {
			if e.Op == handler.Update {
				first <- e.Key().Name
				time.Sleep(10 * time.Second)
			}
			return nil
		})
		one, other := <-first, "a"
		if one == "a" {
			other = "b"
		}
		s.remove(other)
		time.Sleep(30 * time.Second)
		testkit.Equal(t, l.take(), "delete "+other+" 1>-, update "+one+" 1>1")
	})
}
