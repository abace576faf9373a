// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// slotFunc maps keys to slots.
type slotFunc func(types.NamespacedName) (uint8, error)

func (f slotFunc) Slot(key types.NamespacedName) (uint8, error) { return f(key) }

// byLetter maps a key to the slot that is the first byte of its name.
func byLetter(k types.NamespacedName) (uint8, error) {
	if k.Name == "" {
		return 0, errors.New("no name")
	}
	return k.Name[0], nil
}

// slotted is a view of a handle with slots, whatever its type.
type slotted struct {
	sync  func(context.Context) error
	names func() string
	get   func(types.NamespacedName) error
	state func() string
	sub   *cache.Subscription
	told  *seen

	declared cache.Declared
}

// seen checks the events of a subscription.
type seen struct {
	t       *testing.T
	mu      sync.Mutex // guards the fields below
	have    map[string]string
	initial []string // names of the initial adds since the last take
	events  []string
}

func (s *seen) OnAdd(obj any, initial bool) {
	o := obj.(cache.Object)
	s.mu.Lock()
	defer s.mu.Unlock()
	testkit.Equal(s.t, s.have[o.GetName()], "", o.GetName(), "was added twice")
	s.have[o.GetName()] = o.GetResourceVersion()
	s.events = append(s.events, "add "+o.GetName())
	if initial {
		s.initial = append(s.initial, o.GetName())
	}
}

func (s *seen) OnUpdate(_, obj any) {
	o := obj.(cache.Object)
	s.mu.Lock()
	defer s.mu.Unlock()
	testkit.NotEqual(s.t, s.have[o.GetName()], "", o.GetName(), "was updated, and never added")
	s.have[o.GetName()] = o.GetResourceVersion()
	s.events = append(s.events, "update "+o.GetName())
}

func (s *seen) OnDelete(obj any) {
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	o := obj.(cache.Object)
	s.mu.Lock()
	defer s.mu.Unlock()
	testkit.NotEqual(s.t, s.have[o.GetName()], "", o.GetName(), "was deleted, and never added")
	delete(s.have, o.GetName())
	s.events = append(s.events, "delete "+o.GetName())
}

func (s *seen) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.events)
	slices.Sort(s.initial)
	text := strings.Join(s.events, ", ")
	if len(s.initial) > 0 {
		text += "; initial " + strings.Join(s.initial, " ")
	}
	s.events, s.initial = nil, nil
	return text
}

func slottedOf[T cache.Object](t *testing.T, c *cache.Cache, s cache.Scope) *slotted {
	h := cache.ForScope[T](c, s)
	told := &seen{t: t, have: map[string]string{}}
	sub, err := h.Subscribe(told)
	testkit.NoError(t, err)
	return &slotted{
		sync: h.WaitForSync, sub: sub, told: told, declared: h, state: func() string { return h.State().String() },
		get: func(at types.NamespacedName) error { _, err := h.Get(t.Context(), at); return err },
		names: func() string {
			list, err := h.List(t.Context(), cache.ListOptions{})
			if err != nil {
				return err.Error()
			}
			var names []string
			for _, o := range list {
				names = append(names, o.GetName())
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		},
	}
}

// slotForms are handles for ConfigMaps in each form.
var slotForms = map[string]func(*testing.T, *cache.Cache, cache.Scope) *slotted{
	"packed": func(t *testing.T, c *cache.Cache, s cache.Scope) *slotted {
		s.Storage = cache.Packed
		return slottedOf[*corev1.ConfigMap](t, c, s)
	},
	"decoded": func(t *testing.T, c *cache.Cache, s cache.Scope) *slotted {
		s.Storage = cache.Decoded
		return slottedOf[*corev1.ConfigMap](t, c, s)
	},
	"unstructured": func(t *testing.T, c *cache.Cache, s cache.Scope) *slotted {
		s.Kind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
		return slottedOf[*unstructured.Unstructured](t, c, s)
	},
	"packed unstructured": func(t *testing.T, c *cache.Cache, s cache.Scope) *slotted {
		s.Kind, s.Storage = corev1.SchemeGroupVersion.WithKind("ConfigMap"), cache.Packed
		return slottedOf[*unstructured.Unstructured](t, c, s)
	},
	"metadata": func(t *testing.T, c *cache.Cache, s cache.Scope) *slotted {
		s.Kind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
		return slottedOf[*metav1.PartialObjectMetadata](t, c, s)
	},
}

// gate lets a test delay lists, after the server has answered, and the bytes of watches.
type gate struct {
	http.RoundTripper

	mu      sync.Mutex // guards the fields below
	lists   chan struct{}
	watches chan struct{} // nil: open
}

// close holds the answers to lists, or the bytes of watches, until open is called.
func (g *gate) close(which *chan struct{}) (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(chan struct{})
	*which = c
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		close(c)
		*which = nil
	})
}

func (g *gate) wait(ctx context.Context, which *chan struct{}) error {
	g.mu.Lock()
	c := *which
	g.mu.Unlock()
	if c == nil {
		return nil
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := g.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if r.URL.Query().Get("watch") != "" {
		resp.Body = gated{resp.Body, func() error { return g.wait(r.Context(), &g.watches) }}
		return resp, nil
	}
	if resp.StatusCode == http.StatusOK && strings.HasSuffix(r.URL.Path, "/configmaps") {
		err = g.wait(r.Context(), &g.lists)
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

type gated struct {
	io.ReadCloser

	wait func() error
}

func (g gated) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	if wrong := g.wait(); wrong != nil {
		return 0, wrong
	}
	return n, err
}

func gatedCache(t *testing.T, api *sim.Server) (*cache.Cache, *gate) {
	t.Helper()
	cfg, g := api.Config(), &gate{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		g.RoundTripper = next
		return g
	})
	c, err := client.New(cfg, client.Options{})
	testkit.NoError(t, err)
	return cache.New(c, cache.Options{}), g
}

// slotWays are the keys that count: the object's own, or its owner's. The first letter of an
// object's name is its slot.
var slotWays = map[string]slotWay{
	"keys":   {object: testkit.ConfigMap},
	"owners": {object: ownedObject, owner: owners},
}

type slotWay struct {
	// object returns an object of the slot.
	object func(name string, data ...string) *corev1.ConfigMap
	owner  schema.GroupVersionKind
}

// ownedObject returns an object whose owner has the slot.
func ownedObject(name string, data ...string) *corev1.ConfigMap {
	c := ownedBy(name[:1], name)
	if len(data) > 0 {
		c.Data = testkit.ConfigMap(name, data...).Data
	}
	return c
}

// withSlots runs a test for each kind of keys, in each form, for streamed and plain lists, with the
// slot a.
func withSlots(t *testing.T, test func(*slotTest)) {
	for by, way := range slotWays {
		for form, of := range slotForms {
			for lists, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
				t.Run(by+"/"+form+"/"+lists, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := newSlotTest(t, way, a)
						for _, name := range []string{"a1", "a2", "b1", "b2", "c1"} {
							s.put(name)
						}
						defer s.start(of)()
						s.expect("a1 a2", "add a1, add a2; initial a1 a2")
						test(s)
					})
				})
			}
		}
	}
}

func newSlotTest(t *testing.T, way slotWay, a answer) *slotTest {
	s := &slotTest{T: t, api: sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Namespaces), slots: cache.NewSlots(slotFunc(byLetter)), way: way, normal: a}
	s.api.Intercept(a)
	s.add("a")
	return s
}

// start starts a cache with a handle, and waits for it.
func (s *slotTest) start(of func(*testing.T, *cache.Cache, cache.Scope) *slotted) (stop func()) {
	c, g := gatedCache(s.T, s.api)
	s.gate, s.slotted = g, of(s.T, c, cache.Scope{Slots: s.slots, SlotOwner: s.way.owner})
	stop = testkit.Start(s.T, c.Run)
	s.wait()
	return stop
}

type slotTest struct {
	*testing.T
	*slotted

	api    *sim.Server
	slots  *cache.Slots
	way    slotWay
	gate   *gate
	normal answer
}

func (s *slotTest) put(name string, data ...string) *unstructured.Unstructured {
	return s.api.Put(sim.ConfigMaps, s.way.object(name, data...))
}

func (s *slotTest) remove(name string) { s.api.Remove(sim.ConfigMaps, "default", name) }

// version returns the resourceVersion of an object at the API server.
func (s *slotTest) version(name string) string {
	return s.api.Object(sim.ConfigMaps, "default", name).GetResourceVersion()
}

// add adds the slots of letters, and drop removes them.
func (s *slotTest) add(letters string) { s.slots.Add([]byte(letters)...) }

func (s *slotTest) drop(letters string) { s.slots.Remove([]byte(letters)...) }

// wait waits for the wanted slots.
func (s *slotTest) wait() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
	defer cancel()
	testkit.NoError(s, errors.Join(s.slots.WaitForSync(ctx), s.sync(ctx), s.sub.WaitForSync(ctx)))
	synctest.Wait()
}

// expect compares the stored names and the events since the last call.
func (s *slotTest) expect(names, events string) {
	s.Helper()
	synctest.Wait()
	testkit.Equal(s, s.names(), names, "the store has")
	testkit.Equal(s, s.told.take(), events, "events")
}

// TestP7_OnlyItsSlots: a cache with Slots keeps and delivers only objects of its slots. A slot that
// is added needs one list; its objects are creates of an initial list. Objects of a removed slot
// are deletes.
func TestP7_OnlyItsSlots(t *testing.T) {
	withSlots(t, func(s *slotTest) {
		s.put("b1", "x")
		s.put("a3")
		s.remove("b2")
		s.put("a1", "x")
		s.remove("a2")
		s.expect("a1 a3", "add a3, delete a2, update a1")
		before := s.api.Count("list", sim.ConfigMaps)
		s.add("bc")
		s.wait()
		s.expect("a1 a3 b1 c1", "add b1, add c1; initial b1 c1")
		testkit.Equal(s, s.api.Count("list", sim.ConfigMaps)-before, 1)
		s.put("b3")
		s.put("b1", "y")
		s.expect("a1 a3 b1 b3 c1", "add b3, update b1")
		s.drop("ba")
		s.expect("c1", "delete a1, delete a3, delete b1, delete b3")
		s.put("b1", "z")
		s.remove("a1")
		s.expect("c1", "")
		s.add("a")
		s.wait()
		s.expect("a3 c1", "add a3; initial a3")
		if err := s.get(types.NamespacedName{Namespace: "default", Name: "b1"}); err == nil || s.way.owner.Kind == "" && !strings.Contains(err.Error(), fmt.Sprintf("slot %d", 'b')) {
			s.Errorf("got %v", err)
		}
		if got := s.state(); !strings.HasSuffix(got, "keeps 2 of 256 slots") {
			s.Errorf("got %s", got)
		}
	})
}

// TestP7_EventsDuringTheList: while the list of an added slot is late, the slots that the informer
// has go on, and no event of the new one is lost or delivered twice.
func TestP7_EventsDuringTheList(t *testing.T) {
	withSlots(t, func(s *slotTest) {
		open := s.gate.close(&s.gate.lists)
		s.add("b")
		synctest.Wait() // the server has answered
		s.put("b1", "x")
		s.remove("b2")
		s.put("b3")
		s.put("b4")
		s.remove("b4")
		s.put("a1", "x")
		s.expect("a1 a2", "update a1")
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		if err := s.slots.WaitForSync(ctx, 'b'); !errors.Is(err, cache.ErrNotSynced) || !strings.Contains(err.Error(), "adds some") {
			s.Errorf("got %v", err)
		}
		open()
		s.wait()
		s.expect("a1 a2 b1 b3", "add b1, add b3; initial b1 b3")
		testkit.Equal(s, s.told.have["b1"], s.version("b1"))
	})
}

// TestP7_LateWatch: if the list is newer than the watch, the slot joins when the watch has caught
// up, and deletes in between are not delivered.
func TestP7_LateWatch(t *testing.T) {
	withSlots(t, func(s *slotTest) {
		open := s.gate.close(&s.gate.watches)
		s.put("b1", "x")
		s.put("b3")
		s.remove("b2") // after the newest object in the list
		synctest.Wait()
		s.add("b")
		synctest.Wait() // the list is there
		s.expect("a1 a2", "")
		s.put("b3", "x")
		s.put("b4")
		open()
		s.put("b5")
		s.wait()
		time.Sleep(time.Second)
		testkit.Equal(s, s.names(), "a1 a2 b1 b3 b4 b5")
		for name, version := range s.told.have {
			testkit.Equal(s, version, s.version(name), name)
		}
	})
}

// TestP7_ListFails: while the list of an added slot fails, the informer follows the API server, and
// State has the reason.
func TestP7_ListFails(t *testing.T) {
	withSlots(t, func(s *slotTest) {
		s.api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Verb == "list" {
				return r.Fail(http.StatusForbidden, "no lists today")
			}
			return nil, nil
		})
		s.add("b")
		time.Sleep(time.Minute)
		s.put("a3")
		s.put("b3")
		s.expect("a1 a2 a3", "add a3")
		if got := s.state(); !strings.Contains(got, "synced") || !strings.Contains(got, "no lists today") {
			s.Errorf("got %s", got)
		}
		s.api.Intercept(s.normal)
		s.wait()
		s.expect("a1 a2 a3 b1 b2 b3", "add b1, add b2, add b3; initial b1 b2 b3")
		testkit.NotContains(s, s.state(), "no lists today")
	})
}

// TestP7_RemovedWhileItJoins: a slot that is removed before its list is there leaves no object, and
// may be added again.
func TestP7_RemovedWhileItJoins(t *testing.T) {
	withSlots(t, func(s *slotTest) {
		open := s.gate.close(&s.gate.lists)
		s.add("bc")
		synctest.Wait()
		s.drop("b")
		synctest.Wait()
		s.put("b3")
		open()
		s.wait()
		s.expect("a1 a2 c1", "add c1; initial c1")
		open = s.gate.close(&s.gate.lists)
		s.add("b")
		synctest.Wait()
		s.drop("b")
		s.add("b")
		s.put("b4")
		synctest.Wait()
		s.drop("b")
		synctest.Wait()
		s.remove("b1")
		synctest.Wait()
		s.add("b")
		synctest.Wait()
		open()
		s.wait()
		s.expect("a1 a2 b2 b3 b4 c1", "add b2, add b3, add b4; initial b2 b3 b4")
	})
}

// TestP7_Relist: after a break or an expired version (410), a change of the slots is not lost.
func TestP7_Relist(t *testing.T) {
	withSlots(t, func(s *slotTest) {
		time.Sleep(time.Minute)
		open := s.gate.close(&s.gate.lists)
		s.add("b")
		synctest.Wait()
		s.api.CutWatches()
		s.put("b3")
		s.put("a3")
		time.Sleep(5 * time.Second)
		s.expect("a1 a2 a3", "add a3")
		open()
		s.wait()
		s.expect("a1 a2 a3 b1 b2 b3", "add b1, add b2, add b3; initial b1 b2 b3")
		s.api.Intercept(refuse)
		s.api.CutWatches()
		time.Sleep(time.Minute)
		s.drop("b")
		s.add("c")
		s.remove("a1")
		s.put("c2")
		s.api.Expire()
		s.api.Intercept(s.normal)
		s.wait()
		s.expect("a2 a3 c1 c2", "add c1, add c2, delete a1, delete b1, delete b2, delete b3; initial c1 c2")
	})
}

var owners = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}

func ownedBy(owner, name string) *corev1.ConfigMap {
	c := testkit.ConfigMap(name)
	if owner != "" {
		c.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Pod", Name: "a-pod", UID: "1"},
			{APIVersion: "v1", Kind: "Secret", Name: owner, UID: types.UID(owner), Controller: new(true)},
		}
	}
	return c
}

// TestP7_Owner: objects live where their controller lives. An object whose controller changes
// leaves or arrives, also while slots are added.
func TestP7_Owner(t *testing.T) {
	for form, of := range slotForms {
		for lists, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
			t.Run(form+"/"+lists, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &slotTest{T: t, api: sim.NewServer(sim.ConfigMaps, sim.Secrets), slots: cache.NewSlots(slotFunc(byLetter)), normal: a}
					s.api.Intercept(a)
					s.slots.Add('a')
					for n, owner := range []string{"a", "a", "b", "b", ""} {
						s.api.Put(sim.ConfigMaps, ownedBy(owner, fmt.Sprintf("x%d", n)))
					}
					c, g := gatedCache(t, s.api)
					s.gate, s.slotted = g, of(t, c, cache.Scope{Slots: s.slots, SlotOwner: owners})
					defer testkit.Start(t, c.Run)()
					s.wait()
					s.expect("x0 x1", "add x0, add x1; initial x0 x1")
					s.api.Put(sim.ConfigMaps, ownedBy("b", "x0"))
					s.api.Put(sim.ConfigMaps, ownedBy("a", "x2"))
					s.api.Put(sim.ConfigMaps, ownedBy("a", "x4"))
					s.api.Put(sim.ConfigMaps, ownedBy("a", "x5"))
					s.api.Put(sim.ConfigMaps, ownedBy("b", "x5"))
					s.expect("x1 x2 x4", "add x2, add x4, add x5, delete x0, delete x5")
					open := s.gate.close(&s.gate.lists)
					s.slots.Add('b')
					synctest.Wait()
					s.api.Put(sim.ConfigMaps, ownedBy("c", "x0"))
					s.api.Put(sim.ConfigMaps, ownedBy("b", "x1"))
					s.api.Put(sim.ConfigMaps, ownedBy("a", "x3"))
					s.expect("x1 x2 x3 x4", "add x3, update x1")
					open()
					s.wait()
					s.expect("x1 x2 x3 x4 x5", "add x5; initial x5")
					s.slots.Remove('a')
					s.expect("x1 x5", "delete x2, delete x3, delete x4")
				})
			})
		}
	}
}

// TestP7_ManySlots: none, many and all.
func TestP7_ManySlots(t *testing.T) {
	for by, way := range slotWays {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSlotTest(t, way, nil)
				for letter := 'a'; letter <= 'z'; letter++ {
					s.put(string(letter) + "1")
				}
				defer s.start(slotForms["packed"])()
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
					testkit.Equal(t, s.names(), strings.Join(want, " "), "the store has")
				}
				s.slots.Remove(all...)
				expect(func(byte) bool { return false })
				s.slots.Add(odd...)
				expect(func(letter byte) bool { return letter%2 == 1 })
				s.slots.Add(all...)
				expect(func(byte) bool { return true })
				s.slots.Remove(odd...)
				expect(func(letter byte) bool { return letter%2 == 0 })
			})
		})
	}
}

// TestP7_ClusterScopedOwners: the key of an owner without a namespace has none.
func TestP7_ClusterScopedOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlotTest(t, slotWay{owner: corev1.SchemeGroupVersion.WithKind("Namespace")}, nil)
		s.slots = cache.NewSlots(slotFunc(func(k types.NamespacedName) (uint8, error) { return uint8(len(k.Namespace)), nil }))
		s.slots.Add(0)
		o, x := testkit.ConfigMap("a1"), s.api.Put(sim.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "x", UID: x.GetUID(), Controller: new(true)}}
		s.api.Put(sim.ConfigMaps, o)
		defer s.start(slotForms["packed"])()
		s.expect("a1", "add a1; initial a1")
	})
}

// TestP7_Behind: a write outside the slots does not make a Reconcile wait; a write inside does,
// until the store shows it.
func TestP7_Behind(t *testing.T) {
	withSlots(t, func(s *slotTest) {
		d := declared(s.declared)
		open := s.gate.close(&s.gate.watches)
		write := func(name string) consistency.Write {
			o := s.put(name, "x")
			return consistency.Write{
				Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "default", Name: name, Object: o, UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
			}
		}
		ours, foreign := write("a1"), write("b1")
		testkit.Equal(s, testkit.Must(d.Behind(foreign)), nil, "foreign")
		testkit.NotEqual(s, testkit.Must(d.Behind(ours)), nil, "ours")
		closed := s.gate.close(&s.gate.lists)
		s.add("b")
		synctest.Wait()
		testkit.NotEqual(s, testkit.Must(d.Behind(foreign)), nil, "its slot joins")
		open()
		closed()
		s.wait()
		for _, w := range []consistency.Write{ours, foreign} {
			behind, err := d.Behind(w)
			testkit.NoError(s, err, w.Name)
			testkit.Equal(s, behind, nil, w.Name)
		}
		// The version of a dropped event shows soon, for deletions at that version.
		gone := write("c1")
		s.remove("a1")
		last := ours
		last.Gone, last.ResourceVersion = true, gone.ResourceVersion
		time.Sleep(time.Second)
		testkit.Equal(s, testkit.Must(d.Behind(last)), nil, "the deletion")
	})
}
