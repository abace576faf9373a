// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package coalesce

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func object1(name string, uid, version int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint(uid)), ResourceVersion: fmt.Sprint(version)}}
}

// gated is a handler that needs a permit for each call, and records the calls.
type gated struct {
	permits chan struct{}
	calls   []string
	check   func(before, after any, gone bool)
}

func (g *gated) record(what string, before, after any, gone bool) {
	<-g.permits
	version := func(obj any) string {
		if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if o, ok := obj.(*corev1.ConfigMap); ok {
			return o.Name + o.ResourceVersion
		}
		return ""
	}
	g.calls = append(g.calls, strings.TrimSpace(what+" "+strings.TrimPrefix(version(before)+">"+version(after), ">")))
	if g.check != nil {
		g.check(before, after, gone)
	}
}

func (g *gated) OnAdd(obj any, initial bool) {
	what := "add"
	if initial {
		what = "initial"
	}
	g.record(what, nil, obj, false)
}
func (g *gated) OnUpdate(before, after any) { g.record("update", before, after, false) }
func (g *gated) OnDelete(obj any)           { g.record("delete", nil, obj, true) }
func (g *gated) OnMerged(before, after any, initial bool) {
	g.record(fmt.Sprintf("merged(%t)", initial), before, after, false)
}

// TestS3_S8_MergedEvents: while a handler is blocked, the events of an object are merged, so that
// the handler sees the first old and the last new state. A handler that keeps up sees each event.
func TestS3_S8_MergedEvents(t *testing.T) {
	a := func(uid, version int) *corev1.ConfigMap { return object1("a", uid, version) }
	for name, c := range map[string]struct {
		events func(l *Listener)
		want   string
	}{
		"updates": {func(l *Listener) {
			l.OnUpdate(a(1, 1), a(1, 2))
			l.OnUpdate(a(1, 2), a(1, 3))
			l.OnUpdate(a(1, 3), a(1, 4))
		}, "merged(false) a1>a4"},
		"an update": {func(l *Listener) { l.OnUpdate(a(1, 1), a(1, 2)) }, "update a1>a2"},
		"an update and resyncs": {func(l *Listener) {
			l.OnUpdate(a(1, 1), a(1, 1))
			l.OnUpdate(a(1, 1), a(1, 2))
			l.OnUpdate(a(1, 2), a(1, 2))
		}, "update a1>a2"},
		"an initial object": {func(l *Listener) {
			l.OnAdd(a(1, 1), true)
			l.OnUpdate(a(1, 1), a(1, 1))
		}, "initial a1"},
		"an initial object that changes": {func(l *Listener) {
			l.OnAdd(a(1, 1), true)
			l.OnUpdate(a(1, 1), a(1, 2))
		}, "merged(false) a2"},
		"a deletion": {func(l *Listener) {
			l.OnUpdate(a(1, 1), a(1, 2))
			l.OnUpdate(a(1, 2), a(1, 3))
			l.OnDelete(a(1, 4))
		}, "merged(false) a1>a3, delete a4"},
		"a new object of the name (S3)": {func(l *Listener) {
			l.OnUpdate(a(1, 1), a(1, 2))
			l.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: a(1, 2)})
			l.OnAdd(a(2, 3), false)
			l.OnUpdate(a(2, 3), a(2, 4))
		}, "delete a2, merged(false) a4"},
		"a new object that goes (S3)": {func(l *Listener) {
			l.OnDelete(a(1, 2))
			l.OnAdd(a(2, 3), false)
			l.OnDelete(a(2, 4))
		}, "delete a2, add a3, delete a4"},
		"many new objects (S3)": {func(l *Listener) {
			l.OnDelete(a(1, 2))
			for i := range 100 {
				l.OnAdd(a(2+i, 3+i), false)
				l.OnDelete(a(2+i, 3+i))
			}
			l.OnAdd(a(1000, 1000), false)
		}, "delete a2, merged(false) a1000"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &gated{permits: make(chan struct{})}
				l := NewListener(h)
				l.OnAdd(object1("other", 1, 1), false)
				time.Sleep(blockedAfter)
				c.events(l)
				testkit.Equal(t, l.Waiting(), 1, "events wait")
				close(h.permits)
				synctest.Wait()
				testkit.Equal(t, strings.Join(h.calls, ", "), "add other1, "+c.want)
				h.calls = nil
				l.OnUpdate(a(1, 1), a(1, 2))
				l.OnUpdate(a(1, 2), a(1, 3))
				synctest.Wait()
				testkit.Equal(t, strings.Join(h.calls, ", "), "update a1>a2, update a2>a3", "a handler that keeps up")
				l.Close()
				<-l.Done()
			})
		})
	}
}

// FuzzS8_Listener plays the lives of three objects while the handler gets permits. Whatever is
// merged, the handler sees a possible life of each object, and its last state.
func FuzzS8_Listener(f *testing.F) {
	for _, seed := range []string{"cuud", "c.uu.d", "Cuuudcud", "c-uuuuuuuuuuuu-d", "c-dcdcdc", "C-xrxux", "c-uSsSs-d", "AaBbCc-udUD", "c-dc.ud.c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, life string) {
		synctest.Test(t, func(t *testing.T) {
			known := map[string]*corev1.ConfigMap{} // by the handler
			h := &gated{permits: make(chan struct{}, len(life))}
			h.check = func(before, after any, gone bool) {
				if tombstone, ok := after.(toolscache.DeletedFinalStateUnknown); ok {
					after = tombstone.Obj
				}
				o, _ := after.(*corev1.ConfigMap)
				last := known[o.Name]
				switch {
				case gone && (last == nil || last.UID != o.UID):
					t.Errorf("%q: deleted %s with UID %s, and the handler knows %v", life, o.Name, o.UID, last)
				case before == nil && !gone && last != nil:
					t.Errorf("%q: added %s, and the handler knows version %s", life, o.Name, last.ResourceVersion)
				case before != nil && before != last:
					t.Errorf("%q: updated %s from another state than version %s", life, o.Name, last.ResourceVersion)
				}
				if known[o.Name] = o; gone {
					delete(known, o.Name)
				}
			}
			l := NewListener(h)
			now := map[string]*corev1.ConfigMap{}
			for i, step := range life {
				name := string('a' + rune(i)%3)
				o, next := now[name], object1(name, i, i+1)
				switch step {
				case '-':
					time.Sleep(blockedAfter)
				case '.':
					h.permits <- struct{}{}
					synctest.Wait()
				case 'c', 'C':
					if o == nil {
						l.OnAdd(next, step == 'C')
						now[name] = next
					}
				case 'u', 'x':
					if o != nil {
						if step == 'u' {
							next.UID = o.UID
						}
						l.OnUpdate(o, next)
						now[name] = next
					}
				case 'r':
					if o != nil {
						l.OnUpdate(o, o)
					}
				case 'd', 's':
					if o != nil {
						if l.OnDelete(o); step == 's' {
							l.OnAdd(next, false)
						}
						if delete(now, name); step == 's' {
							now[name] = next
						}
					}
				}
			}
			close(h.permits)
			synctest.Wait()
			for name, o := range now {
				testkit.Equal(t, known[name], o, life, fmt.Sprintf("the handler knows of %s", name))
			}
			testkit.Equal(t, len(known), len(now), life)
			testkit.Equal(t, l.Waiting(), 0, life)
			l.Close()
			<-l.Done()
		})
	})
}

// TestAHandlerThatExits: a handler that ends its goroutine costs no later event.
func TestAHandlerThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		l := NewListener(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			o, _ := obj.(*corev1.ConfigMap)
			if seen = append(seen, o.Name); o.Name == "a" {
				runtime.Goexit()
			}
		}})
		l.OnAdd(object1("a", 1, 1), false)
		l.OnAdd(object1("b", 1, 1), false)
		synctest.Wait()
		testkit.Equal(t, strings.Join(seen, ", "), "a, b")
		l.Close()
		<-l.Done()
	})
}

// TestClose: after Close, no event is delivered. Done waits for the call in progress.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &gated{permits: make(chan struct{})}
		l := NewListener(h)
		l.OnAdd(object1("a", 1, 1), false)
		l.OnAdd(object1("b", 1, 1), false)
		synctest.Wait()
		l.Close()
		l.OnAdd(object1("c", 1, 1), false)
		select {
		case <-l.Done():
			t.Error("done during a call")
		default:
		}
		close(h.permits)
		<-l.Done()
		testkit.Equal(t, strings.Join(h.calls, ", "), "add a1")
		testkit.Equal(t, l.Waiting(), 0)
	})
}
