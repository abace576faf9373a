// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// fairTrial adds and takes keys at random, and checks the definitions of W6 and W7 after each step.
// It does not use virtual time.
type fairTrial struct {
	t       *testing.T
	q       *Queue[fairKey]
	classes map[fairLane]float64 // adds and retries of a class are separate
	tenants map[string]float64
	ready   map[fairKey]*waitingKey
	pairs   map[[3]any]*pair
}

type fairKey struct {
	tenant string
	n      int
}

// fairLane is a lane of W6: the adds of a class, or its retries.
type fairLane struct {
	class Class
	adds  bool
}

func (l fairLane) order() int {
	if l.adds {
		return 2*int(l.class) + 1
	}
	return 2 * int(l.class)
}

// waitingKey is a ready key with its bound of W6.
type waitingKey struct {
	class    fairLane
	position float64
	others   int // deliveries since it became ready
	tenants  map[string]bool
	classes  map[fairLane]bool
}

// pair is the range of ni/wi − nj/wj of W7 since both tenants have had ready keys.
type pair struct{ at, low, high float64 }

func (f *fairTrial) add(k fairKey, c Class) {
	f.q.AddWith(k, AddOptions{Class: c})
	f.became(k, fairLane{c, true})
}

// became records that a key became ready, unless it was ready in the same or a higher lane.
func (f *fairTrial) became(k fairKey, c fairLane) {
	if w := f.ready[k]; w != nil && w.class.order() >= c.order() {
		return
	}
	delete(f.ready, k)
	f.watch()
	position := 1.0
	for other, w := range f.ready {
		if other.tenant == k.tenant && w.class == c {
			position++
		}
	}
	f.ready[k] = &waitingKey{class: c, position: position, tenants: map[string]bool{}, classes: map[fairLane]bool{}}
	f.watch()
}

// take takes a key, checks both guarantees and settles the key.
func (f *fairTrial) take(fail bool) {
	item := mustGet(f.t, f.q)
	k := item.Key()
	w := f.ready[k]
	if w == nil || w.class.class != item.Class() {
		f.t.Fatalf("%v was delivered in class %v, expected %+v", k, item.Class(), w)
	}
	if most := f.most(k, w); float64(w.others) > most {
		f.t.Fatalf("W6: %v, %+v, was taken after %d others, the bound is %v", k, w, w.others, most)
	}
	delete(f.ready, k)
	for _, other := range f.ready {
		other.others++
	}
	for other := range f.tenants {
		f.count([3]any{w.class, k.tenant, other}, 1/f.tenants[k.tenant])
		f.count([3]any{w.class, other, k.tenant}, -1/f.tenants[k.tenant])
	}
	f.watch()
	if !fail {
		settled(f.t, item.Done())
		return
	}
	_, err := item.Retry(nil)
	settled(f.t, err)
	f.became(k, fairLane{w.class.class, false})
}

// count counts a delivery to a tenant of a pair if both tenants have ready keys.
func (f *fairTrial) count(key [3]any, by float64) {
	p := f.pairs[key]
	if p == nil {
		return
	}
	p.at += by
	p.low, p.high = min(p.low, p.at), max(p.high, p.at)
	wi, wj := f.tenants[key[1].(string)], f.tenants[key[2].(string)]
	if most := 1/wi + 1/wj; p.high-p.low > most*(1+1e-9) {
		f.t.Fatalf("W7: %v: weights %v and %v are %v apart, the bound is %v", key, wi, wj, p.high-p.low, most)
	}
}

// watch records which tenants have ready keys now.
func (f *fairTrial) watch() {
	backlogged := map[fairLane]map[string]bool{}
	for k, w := range f.ready {
		if backlogged[w.class] == nil {
			backlogged[w.class] = map[string]bool{}
		}
		backlogged[w.class][k.tenant] = true
	}
	for k, w := range f.ready {
		for tenant := range backlogged[w.class] {
			if tenant != k.tenant {
				w.tenants[tenant] = true
			}
		}
		for class := range backlogged {
			if class != w.class {
				w.classes[class] = true
			}
		}
	}
	for class := range f.classes {
		for i := range f.tenants {
			for j := range f.tenants {
				key := [3]any{class, i, j}
				switch both := i != j && backlogged[class][i] && backlogged[class][j]; {
				case !both:
					delete(f.pairs, key)
				case f.pairs[key] == nil:
					f.pairs[key] = &pair{}
				}
			}
		}
	}
}

// most is F of W6.
func (f *fairTrial) most(k fairKey, w *waitingKey) float64 {
	total := w.position - 1
	for tenant := range w.tenants {
		total += math.Ceil(w.position*f.tenants[tenant]/f.tenants[k.tenant]) + 1
	}
	in := total
	for class := range w.classes {
		total += math.Ceil((in+1)*f.classes[class]/f.classes[w.class]) + 1
	}
	return total
}

func newFairTrial(t *testing.T, seed uint64) (*fairTrial, *rand.Rand) {
	r := rand.New(rand.NewPCG(seed, 2))
	weight := func() float64 { return []float64{0.01, 0.3, 1, 1, 1, 2, 3, 7, 100}[r.IntN(9)] }
	f := &fairTrial{t: t, classes: map[fairLane]float64{}, tenants: map[string]float64{}, ready: map[fairKey]*waitingKey{}, pairs: map[[3]any]*pair{}}
	var shares []ClassWeight
	for c := range Class(1 + r.IntN(3)) {
		w := weight()
		f.classes[fairLane{c, true}], f.classes[fairLane{c, false}] = w, w/4
		shares = append(shares, ClassWeight{c, w})
	}
	for i := range 1 + r.IntN(4) {
		f.tenants[fmt.Sprint(i)] = weight()
	}
	f.q = newQueue(t, Options[fairKey]{
		Classes: shares, Tenant: func(k fairKey) string { return k.tenant }, Backoff: none{},
		TenantWeight: func(tenant string) float64 { return f.tenants[tenant] },
	})
	return f, r
}

func testFair(t *testing.T, from uint64) {
	for seed := from; seed < from+60; seed++ {
		f, r := newFairTrial(t, seed)
		for range 300 {
			// In some phases keys come faster than they go, so tenants come and go.
			if r.IntN(3) > 0 == (r.IntN(40) > 0) || len(f.ready) == 0 {
				f.add(fairKey{fmt.Sprint(r.IntN(len(f.tenants))), r.IntN(12)}, Class(r.IntN(len(f.classes)/2)))
			} else {
				f.take(r.IntN(3) == 0)
			}
		}
		for len(f.ready) > 0 {
			f.take(false)
		}
	}
}

func TestW6_NoStarvation(t *testing.T) { testFair(t, 0) }

func TestW7_Shares(t *testing.T) { testFair(t, 1000) }

// TestW6_Classes: if all classes are busy, each gets its share.
func TestW6_Classes(t *testing.T) {
	q := newQueue(t, Options[int]{Classes: ThreeClasses()})
	class := []Class{Interactive, Normal, Background}
	for k := range 3 {
		q.AddWith(k, AddOptions{Class: class[k]})
	}
	var n [3]int
	for range 2100 {
		item := mustGet(t, q)
		n[item.Key()]++
		q.AddWith(item.Key(), AddOptions{Class: class[item.Key()]})
		settled(t, item.Done())
		if q.Len().Ready < 3 {
			t.Fatal("a key is missing")
		}
	}
	for i, share := range []int{1600, 400, 100} {
		testkit.AtLeast(t, n[i], share-1, n)
		testkit.AtMost(t, n[i], share+1, n)
	}
}

// TestW7_SmallTenants: one tenant has 100,000 keys, 999 have one each.
func TestW7_SmallTenants(t *testing.T) {
	q := newQueue(t, Options[fairKey]{Tenant: func(k fairKey) string { return k.tenant }})
	var keys []fairKey
	for i := range 100_000 {
		keys = append(keys, fairKey{"large", i})
	}
	for i := range 999 {
		keys = append(keys, fairKey{fmt.Sprint(i), 0})
	}
	q.AddAll(keys, AddOptions{})
	small := 0
	for range 1100 {
		item := mustGet(t, q)
		if item.Key().tenant != "large" {
			small++
		}
		settled(t, item.Done())
	}
	testkit.Equal(t, small, 999, "small tenants were served within 1,100 deliveries")
}

// TestFairTenantsAreForgotten: memory for tenants does not grow with the tenants ever seen.
func TestFairTenantsAreForgotten(t *testing.T) {
	q := newQueue(t, Options[fairKey]{Classes: ThreeClasses(), Tenant: func(k fairKey) string { return k.tenant }})
	q.Add(fairKey{"always", 0})
	for i := range 20_000 {
		q.Add(fairKey{fmt.Sprint(i), 0})
		q.Add(fairKey{"always", i})
		for range 2 {
			settled(t, mustGet(t, q).Done())
		}
	}
	testkit.AtMost(t, len(q.core.fair.tenants), 4*minIdle)
}

// TestFairRebase: shares stay exact after virtual time was reduced.
func TestFairRebase(t *testing.T) {
	weights := map[string]float64{"a": 1e-6, "b": 3e-6}
	q := newQueue(t, Options[fairKey]{
		Classes: []ClassWeight{{Normal, 1e-6}, {Background, 1e-6}},
		Tenant:  func(k fairKey) string { return k.tenant }, TenantWeight: func(tenant string) float64 { return weights[tenant] },
	})
	n := map[string]float64{}
	low, high := 0.0, 0.0
	for i := range 4000 {
		q.Add(fairKey{"a", i})
		q.Add(fairKey{"b", i})
		q.AddWith(fairKey{"a", -i - 1}, AddOptions{Class: Background})
	}
	for range 3000 {
		item := mustGet(t, q)
		if item.Class() == Normal {
			n[item.Key().tenant]++
			d := n["a"]/1 - n["b"]/3
			low, high = min(low, d), max(high, d)
		}
		settled(t, item.Done())
	}
	testkit.AtMost(t, high-low, 1+1.0/3+1e-6)
	testkit.Equal(t, n["a"]+n["b"], 1500)
	testkit.AtMost(t, q.core.fair.classes[1].virtual, rebaseAt+1e7)
}
