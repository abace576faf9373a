// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// shelf is a store that changes as those of client-go do, and the events that it makes.
type shelf struct {
	random  *rand.Rand
	version int
	objects map[string]*corev1.ConfigMap
	events  []event
}

type event struct{ before, now any }

// state is what a handler knows of a store after some of its events: the version of each object.
type state map[types.UID]string

func (s state) handle(e event) {
	if before, ok := lastKnown(e.before); ok {
		delete(s, before.UID)
	}
	if now, ok := e.now.(*corev1.ConfigMap); ok {
		s[now.UID] = now.ResourceVersion
	}
}

func lastKnown(obj any) (*corev1.ConfigMap, bool) {
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	m, ok := obj.(*corev1.ConfigMap)
	return m, ok
}

func (s *shelf) object(name string) *corev1.ConfigMap {
	s.version++
	m := &corev1.ConfigMap{}
	m.Name, m.ResourceVersion, m.UID = name, fmt.Sprint(s.version), types.UID(fmt.Sprint("uid-", s.version))
	return m
}

// change changes one of a few objects, in a watch that shows it or unseen, and returns the event, if any.
func (s *shelf) change(objects map[string]*corev1.ConfigMap) (e event) {
	name := fmt.Sprint("m", s.random.IntN(5))
	old, there := objects[name]
	changed := s.object(name)
	if there {
		e.before = old
		changed.UID = old.UID
	}
	if there && s.random.IntN(3) == 0 {
		delete(objects, name)
		return event{before: changed} // at the version of the delete
	}
	objects[name] = changed
	e.now = changed
	return e
}

// relist replaces all after some changes that no watch has shown. Some objects are others of the same name then.
func (s *shelf) relist() {
	now := maps.Clone(s.objects)
	for range s.random.IntN(6) {
		s.change(now)
	}
	for name, old := range s.objects {
		if now[name] == nil {
			s.events = append(s.events, event{before: toolscache.DeletedFinalStateUnknown{Key: name, Obj: old}})
		}
	}
	for name, m := range now {
		if old := s.objects[name]; old == nil {
			s.events = append(s.events, event{now: m})
		} else if old != m {
			s.events = append(s.events, event{before: old, now: m})
		}
	}
	s.objects = now
}

func (s *shelf) list() (list []any) {
	for _, m := range s.objects {
		list = append(list, m)
	}
	return list
}

// TestS10_Told: after each event of random ones, a handler was told of a store's state just if it knows each object's version.
func TestS10_Told(t *testing.T) {
	for seed := range uint64(300) {
		s := &shelf{random: rand.New(rand.NewPCG(seed, 0)), objects: map[string]*corev1.ConfigMap{}}
		h, known := &handled{seed: maphash.MakeSeed()}, state{}
		for range 60 {
			for range s.random.IntN(4) {
				s.events = append(s.events, s.change(s.objects))
			}
			if s.random.IntN(4) == 0 {
				s.relist()
			}
			want := state{}
			for _, m := range s.objects {
				want[m.UID] = m.ResourceVersion
			}
			for range s.random.IntN(len(s.events) + 1) {
				e := s.events[0]
				s.events = slices.Delete(s.events, 0, 1)
				known.handle(e)
				h.note(e.before, e.now)
				told, _ := h.now()
				if got := told.covers(h.seed, s.list()); got != maps.Equal(known, want) {
					t.Fatalf("seed %d: it was told of all: %t; it knows %v of %v", seed, got, known, want)
				}
			}
		}
	}
}

// TestS10_UnorderedDelete: after a delete at a version that is not a number, CatchUp reports that it cannot tell.
func TestS10_UnorderedDelete(t *testing.T) {
	h := &handled{seed: maphash.MakeSeed()}
	m := &corev1.ConfigMap{}
	m.Name, m.ResourceVersion = "a", "first"
	h.note(nil, m)
	if told, _ := h.now(); !told.covers(h.seed, []any{m}) || told.unordered {
		t.Error("it was not told of an object")
	}
	gone := m.DeepCopy()
	gone.ResourceVersion = "second"
	h.note(gone, nil)
	if told, _ := h.now(); !told.unordered {
		t.Error("the delete has a version")
	}
}
