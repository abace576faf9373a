// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// FuzzP7_Churn: objects come, go and change their owners, slots are added and removed, watches
// break, versions expire, and lists and watches are late or fail. Afterwards, stores and
// subscriptions have exactly the objects of the slots. No object is added twice, or deleted twice.
func FuzzP7_Churn(f *testing.F) {
	for seed := range uint64(24) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { newSlotChurn(t, seed).run() })
	})
}

type slotChurn struct {
	*churn // for its nasty answers

	slots  *cache.Slots
	gate   *gate
	open   []func()
	copies map[string]*slotted
}

func newSlotChurn(t *testing.T, seed uint64) *slotChurn {
	c := &slotChurn{
		churn: &churn{t: t, random: rand.New(rand.NewPCG(seed, 2)), api: sim.NewServer(sim.ConfigMaps, sim.Secrets)},
		slots: cache.NewSlots(slotFunc(byLetter)), copies: map[string]*slotted{},
	}
	if c.random.IntN(2) == 0 {
		c.normal = noStreaming(nil)
	}
	var all *cache.Cache
	all, c.gate = gatedCache(t, c.api)
	c.caches = []*cache.Cache{all}
	forms := slices.Sorted(maps.Keys(slotForms))
	for what, scope := range map[string]cache.Scope{"own": {Slots: c.slots}, "owners": {Slots: c.slots, SlotOwner: owners}} {
		c.copies[what] = slotForms[forms[c.random.IntN(len(forms))]](t, all, scope)
	}
	return c
}

func (c *slotChurn) name() string { return fmt.Sprintf("%c%d", 'a'+c.random.IntN(4), c.random.IntN(3)) }

func (c *slotChurn) letter() string { return string(rune('a' + c.random.IntN(4))) }

func (c *slotChurn) run() {
	c.api.Intercept(c.normal)
	defer testkit.Start(c.t, c.caches[0].Run)()
	for range 200 {
		c.step()
	}
	c.api.Intercept(c.normal)
	c.release()
	// A fault may have made client-go's reflector pause.
	time.Sleep(5 * time.Minute)
	for _, s := range c.copies {
		testkit.Equal(c.t, s.sync(c.t.Context()), nil)
		testkit.Equal(c.t, s.sub.WaitForSync(c.t.Context()), nil)
	}
	synctest.Wait()
	c.compare()
}

func (c *slotChurn) release() {
	for _, open := range c.open {
		open()
	}
	c.open = nil
}

func (c *slotChurn) step() {
	r := c.random
	switch k := r.IntN(40); {
	case k < 12:
		c.put(c.letter(), c.name())
	case k < 17:
		c.api.Remove(sim.ConfigMaps, "default", c.name())
	case k < 20:
		c.slots.Add(c.letter()[0], c.letter()[0])
	case k < 23:
		c.slots.Remove(c.letter()[0])
	case k == 23:
		letter := c.letter()[0]
		c.slots.Remove(letter)
		c.slots.Add(letter)
	case k == 24:
		c.release()
		c.open = append(c.open, c.gate.close(&c.gate.lists))
	case k == 25:
		c.release()
		c.open = append(c.open, c.gate.close(&c.gate.watches))
	case k == 26 || k == 27:
		c.release()
	case k == 28:
		c.api.CutWatches()
	case k == 29 && r.IntN(3) == 0:
		c.api.Expire()
	case k == 30 && r.IntN(3) == 0:
		c.api.Intercept(c.nasty)
	case k == 31:
		c.api.Intercept(c.normal)
	case k == 32:
		time.Sleep(time.Duration(r.IntN(100)) * time.Second)
	case k < 36:
		synctest.Wait()
	default:
		time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
	}
}

func (c *slotChurn) put(owner, name string) { c.api.Put(sim.ConfigMaps, ownedBy(owner, name)) }

func (c *slotChurn) compare() {
	wanted := map[byte]bool{}
	for _, slot := range c.slots.Elements() {
		wanted[slot] = true
	}
	for what, s := range c.copies {
		want, names := map[string]string{}, []string{}
		for n := range 12 {
			name := fmt.Sprintf("%c%d", 'a'+n/3, n%3)
			o := c.api.Object(sim.ConfigMaps, "default", name)
			if o == nil || !wanted[slotOwnerOf(o, what == "own")[0]] {
				continue
			}
			want[name] = o.GetResourceVersion()
			names = append(names, name)
		}
		slices.Sort(names)
		s.told.mu.Lock()
		if !maps.Equal(s.told.have, want) {
			c.t.Errorf("%s: the API server has %v, the subscription was told of %v; %v", what, want, s.told.have, s.told.events)
		}
		s.told.mu.Unlock()
		testkit.Equal(c.t, s.names(), fmt.Sprint(names)[1:len(fmt.Sprint(names))-1], what, fmt.Sprintf("the API server has %v, the store", names))
	}
}

func slotOwnerOf(o *unstructured.Unstructured, own bool) string {
	if own {
		return o.GetName()
	}
	return o.GetOwnerReferences()[1].Name
}
