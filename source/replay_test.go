// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestReplay_DeliversEveryObjectAsInTheInitialList: GenerationChanged, which drops resyncs, keeps
// the events, and they are in class Background.
func TestReplay_DeliversEveryObjectAsInTheInitialList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a=1")
		src := source.Kind(s.maps, l, handler.ResourceVersionChanged)
		replay := src.(replaying).Replay
		stop := s.start(src, l, nil)
		synced(t, src)
		synctest.Wait()
		l.take()
		l.takeAdded()
		s.put("a=2")
		synctest.Wait()
		l.take()
		l.takeAdded()
		testkit.NoError(t, replay(t.Context()))
		testkit.Equal(t, l.take(), "create a ->2 initial", "delivered")
		if added := l.takeAdded(); len(added) != 1 || added[0].Class != workqueue.Background {
			t.Errorf("added %+v", added)
		}
		stop()
		testkit.NotEqual(t, replay(t.Context()), nil, "a stopped source was replayed")
	})
}

// TestReplay_DoesNotHideAFailedUpdate: the handler still sees both states of an update that failed
// before, and then the object of the replay.
func TestReplay_DoesNotHideAFailedUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a=1")
		src := s.follow(l)
		synctest.Wait()
		l.take()
		l.failWith(func(e handler.Event) error {
			if e.Op == handler.Update {
				return errors.New("not now")
			}
			return nil
		})
		s.put("a=2")
		synctest.Wait()
		testkit.NoError(t, replay(t, src))
		testkit.Equal(t, l.take(), "", "delivered before the update")
		l.failWith(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.Equal(t, l.take(), "update a 1>2, create a ->2 initial", "delivered")
	})
}
