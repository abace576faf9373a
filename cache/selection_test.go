// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
)

// tap records what an API server sends about ConfigMaps.
type tap struct {
	http.RoundTripper

	mu   sync.Mutex // guards the fields below
	sent bytes.Buffer
}

func (p *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.RoundTripper.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/configmaps") {
		resp.Body = tapped{resp.Body, p}
	}
	return resp, err
}

type tapped struct {
	io.ReadCloser

	tap *tap
}

func (b tapped) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.tap.mu.Lock()
	defer b.tap.mu.Unlock()
	b.tap.sent.Write(p[:n])
	return n, err
}

// take returns which names were sent since the last take.
func (p *tap) take(names string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sent []string
	for _, name := range strings.Fields(names) {
		if bytes.Contains(p.sent.Bytes(), []byte(name)) {
			sent = append(sent, name)
		}
	}
	p.sent.Reset()
	return strings.Join(sent, " ")
}

// tappedTest is newSlotTest with a tap.
func tappedTest(t *testing.T, way slotWay, a answer) (*slotTest, *cache.Cache, *tap) {
	s, p := newSlotTest(t, way, a), &tap{}
	cfg := s.api.Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		p.RoundTripper = next
		return p
	})
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s, cache.New(c, cache.Options{}), p
}

// TestP7_TheServerSelects: with a Selection, the API server sends only objects of the wanted slots,
// and those without the label. The wanted slots may change.
func TestP7_TheServerSelects(t *testing.T) {
	const names = "a1-x a2-x b1-x b2-x c1-x c2-x"
	for by, want := range map[string]struct{ first, added, removed string }{
		"the client":      {names, names, names},
		"a label":         {"a1-x a2-x b2-x c2-x", "a1-x a2-x b1-x b2-x c2-x", "a2-x b1-x b2-x c2-x"},
		"ranges":          {"a1-x a2-x", "a1-x a2-x b1-x b2-x", "b1-x b2-x"},
		"ranges, ignored": {names, names, names},
		"ranges, refused": {names, names, names},
	} {
		way := slotWays[by]
		for lists, a := range map[string]answer{"streaming": way.answer, "listing": noStreaming(way.answer)} {
			t.Run(by+"/"+lists, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, c, p := tappedTest(t, way, a)
					change := func(data string) {
						for _, name := range strings.Fields(names) {
							s.put(name, data)
						}
						synctest.Wait()
					}
					change("1")
					s.slotted = slotForms["packed"](t, c, cache.Scope{Slots: s.slots, SlotOwner: way.owner})
					defer start(t, c)()
					s.wait()
					expect := func(when, want string) {
						t.Helper()
						if got := p.take(names); got != want {
							t.Errorf("%s: the API server sent %s; want %s", when, got, want)
						}
					}
					expect("list", want.first)
					change("2")
					expect("watch", want.first)
					s.add("b")
					s.wait()
					p.take(names)
					change("3")
					expect("added", want.added)
					s.drop("a")
					synctest.Wait()
					p.take(names)
					change("4")
					expect("removed", want.removed)
					if got := s.names(); got != "b1-x b2-x" {
						t.Errorf("the store has %s", got)
					}
					if got := s.state(); !strings.HasSuffix(got, "selected by "+way.state) {
						t.Errorf("got %s", got)
					}
				})
			})
		}
	}
}

// TestP7_ManySlots: each set of slots is selected, with few and many ranges, none and all.
func TestP7_ManySlots(t *testing.T) {
	for by, way := range slotWays {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c, _ := tappedTest(t, way, way.answer)
				for letter := 'a'; letter <= 'z'; letter++ {
					s.put(string(letter)+"1", "x")
				}
				s.slotted = slotForms["packed"](t, c, cache.Scope{Slots: s.slots, SlotOwner: way.owner, Labels: labels.Everything()})
				defer start(t, c)()
				s.wait()
				var odd, all []uint8
				for slot := range 256 {
					if all = append(all, uint8(slot)); slot%2 == 1 {
						odd = append(odd, uint8(slot))
					}
				}
				expect := func(set func(letter byte) bool) {
					t.Helper()
					s.wait()
					var want []string
					for letter := byte('a'); letter <= 'z'; letter++ {
						if set(letter) {
							want = append(want, string(letter)+"1")
						}
					}
					if got := s.names(); got != strings.Join(want, " ") {
						t.Errorf("the store has %s; want %s", got, want)
					}
				}
				s.slots.Remove(all...)
				expect(func(byte) bool { return false })
				s.slots.Add(odd...)
				expect(func(letter byte) bool { return way.slot(letter)%2 == 1 })
				s.slots.Add(all...)
				expect(func(byte) bool { return true })
				s.slots.Remove(odd...)
				expect(func(letter byte) bool { return way.slot(letter)%2 == 0 })
			})
		})
	}
}

// TestP7_TheWatchIsRefused: if the watch of other slots is refused because its version has expired,
// the informer lists all wanted slots. Meanwhile, no event is lost.
func TestP7_TheWatchIsRefused(t *testing.T) {
	for _, by := range [...]string{"a label", "ranges"} {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				way := slotWays[by]
				s, c, _ := tappedTest(t, way, way.answer)
				for _, name := range []string{"a1", "a2", "b1", "b2", "c1"} {
					s.put(name)
				}
				s.slotted = slotForms["packed"](t, c, cache.Scope{Slots: s.slots, SlotOwner: way.owner})
				defer start(t, c)()
				s.wait()
				time.Sleep(time.Second)
				s.put("c1", "x") // the watch does not see it
				s.api.Expire()
				s.add("b")
				s.remove("a1")
				s.put("b3")
				s.wait()
				time.Sleep(time.Minute) // a new watch may wait for its backoff
				synctest.Wait()
				if got := s.names(); got != "a2 b1 b2 b3" {
					t.Errorf("the store has %s", got)
				}
				// The list may be answered before a1 is removed and b3 is made, or after.
				if events, _, _ := strings.Cut(s.told.take(), ";"); events != "add a1, add a2, add b1, add b2, add b3, delete a1" {
					t.Errorf("events: %s", events)
				}
			})
		})
	}
}

// TestP7_TheSelectorIsRefused: with an answer that may be due to the shardSelector, the informer
// goes on without it, reports that once, and tries it again with each request.
func TestP7_TheSelectorIsRefused(t *testing.T) {
	for name, refuse := range map[string]answer{
		"bad request":           failing(http.StatusBadRequest),
		"invalid":               failing(http.StatusUnprocessableEntity),
		"address too long":      failing(http.StatusRequestURITooLong),
		"internal error":        failing(http.StatusInternalServerError),
		"forbidden, by a proxy": forbiddenByProxy,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, h := newRefusedTest(t, onShards(refuse))
				s.api.Expire() // the watch of other slots ends in a list
				s.add("b")
				s.wait()
				s.put("b2")
				s.remove("c1")
				s.remove("a1")
				s.expect("b1 b2", "add a1, add b1, add b2, delete a1; initial a1 b1")
				if got, want := s.state(), "synced, keeps 2 of 256 slots, selected by shardSelector, which the API server refuses"; !strings.HasSuffix(got, want) {
					t.Errorf("the state is %s; want %s", got, want)
				}
				if len(h.told) != 1 {
					t.Errorf("it reported %v; want one error", h.told)
				}
				s.api.Intercept(nil)
				s.add("c")
				s.wait()
				if got := s.state(); !strings.HasSuffix(got, "keeps 3 of 256 slots, selected by shardSelector") {
					t.Errorf("the API server now accepts it, and the state is %s", got)
				}
			})
		})
	}
}

// TestP7_OtherErrorsAreNoRefusal: an error that is not about the request's parameters is no reason
// to ask for the objects of all slots.
func TestP7_OtherErrorsAreNoRefusal(t *testing.T) {
	for _, code := range [...]int{http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var selected, others atomic.Int32
				s := newSlotTest(t, slotWays["ranges"], func(r *sim.Request) (*http.Response, error) {
					switch {
					case r.Resource.Resource != sim.ConfigMaps.Name:
						return nil, nil
					case r.Query.Has("shardSelector"):
						selected.Add(1)
					default:
						others.Add(1)
					}
					return r.Fail(code, "no")
				})
				c, _ := gatedCache(t, s.api)
				s.slotted = slotForms["packed"](t, c, cache.Scope{Slots: s.slots})
				defer start(t, c)()
				time.Sleep(time.Minute)
				if selected.Load() == 0 || others.Load() > 0 {
					t.Errorf("%d requests with the shardSelector, %d without", selected.Load(), others.Load())
				}
			})
		})
	}
}

// refusals records the calls of the hook Unselected. Read it in a bubble that waits.
type refusals struct{ told []string }

func (r *refusals) add(kind string, err error) { r.told = append(r.told, kind+": "+err.Error()) }

// newRefusedTest returns a test with a cache of the slot a that runs.
func newRefusedTest(t *testing.T, a answer) (*slotTest, *refusals) {
	t.Helper()
	s, h := newSlotTest(t, slotWays["ranges"], a), &refusals{}
	cl, err := client.New(s.api.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a1", "b1", "c1"} {
		s.put(name)
	}
	c := cache.New(cl, cache.Options{Hooks: &hook.Cache{Unselected: h.add}})
	s.slotted = slotForms["packed"](t, c, cache.Scope{Slots: s.slots})
	t.Cleanup(start(t, c))
	s.wait()
	return s, h
}

func failing(code int) answer {
	return func(r *sim.Request) (*http.Response, error) { return r.Fail(code, "cannot read the address") }
}

// forbiddenByProxy is an answer that is not the API server's.
func forbiddenByProxy(r *sim.Request) (*http.Response, error) {
	resp, err := r.Send("<html>Request blocked.</html>")
	resp.StatusCode, resp.Header = http.StatusForbidden, http.Header{"Content-Type": {"text/html"}}
	return resp, err
}

// onShards answers requests with a shardSelector.
func onShards(a answer) answer {
	return func(r *sim.Request) (*http.Response, error) {
		if !r.Query.Has("shardSelector") {
			return nil, nil
		}
		return a(r)
	}
}

// TestP7_ALabelThatIsWrong: an object with the label of another slot is not kept by the replica of
// its own slot, as if it did not match a label selector, until the label is corrected. The replica
// of the other slot drops it.
func TestP7_ALabelThatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := slotWays["a label"]
		s, c, _ := tappedTest(t, way, nil)
		for _, name := range []string{"a1", "a3", "b1"} {
			s.put(name)
		}
		s.slotted = slotForms["packed"](t, c, cache.Scope{Slots: s.slots, SlotOwner: way.owner})
		defer start(t, c)()
		s.wait()
		s.told.take()
		d := declared(s.declared)
		for _, name := range []string{"a1", "b1", "a5"} { // a5 is the newest, and no event shows it
			slot := 'a' + 'b' - name[0]
			o := way.object(name)
			o.Labels[slotLabel] = slotValue(owners.GroupKind(), slot)
			stored := s.api.Put(sim.ConfigMaps, o)
			w := consistency.Write{
				Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "default", Name: name, ResourceVersion: stored.GetResourceVersion(), Object: stored,
			}
			synctest.Wait()
			if gap, err := d.Behind(w); gap != nil || err != nil {
				t.Errorf("%s: %v, %v", name, gap, err)
			}
		}
		s.expect("a3", "delete a1")
		for _, name := range []string{"a1", "b1", "a5"} {
			s.put(name)
		}
		s.expect("a1 a3 a5", "add a1, add a5")
	})
}

// TestP7_ClusterScopedOwners: the namespace of an object does not select the slot of an owner
// without a namespace.
func TestP7_ClusterScopedOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := slotWays["ranges"]
		way.owner = corev1.SchemeGroupVersion.WithKind("Namespace")
		s, c, _ := tappedTest(t, way, nil)
		s.drop("a")
		slot, err := way.of(types.NamespacedName{Name: "x"})
		if err != nil {
			t.Fatal(err)
		}
		s.slots.Add(slot)
		o, x := inNamespace("a1"), s.api.Put(sim.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "x", UID: x.GetUID(), Controller: new(true)}}
		s.api.Put(sim.ConfigMaps, o)
		s.slotted = slotForms["packed"](t, c, cache.Scope{Slots: s.slots, SlotOwner: way.owner})
		defer start(t, c)()
		s.wait()
		s.expect("a1", "add a1; initial a1")
		if got := s.state(); !strings.HasSuffix(got, "selected by the client") {
			t.Errorf("got %s", got)
		}
	})
}

// TestSlots_WrongSelections are errors of the scope.
func TestSlots_WrongSelections(t *testing.T) {
	same := func(schema.GroupKind, uint8) string { return "same" }
	for want, slots := range map[string]*cache.Slots{
		"needs the slots of shard.ByNamespaceRange": cache.NewSlots(byLetter, cache.SelectByNamespace()),
		"has no function":      cache.NewSlots(byLetter, cache.SelectByLabel(slotLabel, nil)),
		"each needs its own":   cache.NewSlots(byLetter, cache.SelectByLabel(slotLabel, same)),
		`has the key "no key"`: cache.NewSlots(byLetter, cache.SelectByLabel("no key", slotValue)),
		`for slot 0: `: cache.NewSlots(byLetter, cache.SelectByLabel(slotLabel, func(schema.GroupKind, uint8) string {
			return strings.Repeat("x", 64)
		})),
	} {
		err := cache.Scope{Slots: slots, SlotOwner: owners}.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %s", err, want)
		}
	}
}
