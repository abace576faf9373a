// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"hash/maphash"
	"math"
	"runtime"
	"sync"
	"time"

	clientgo "k8s.io/client-go/util/workqueue"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// memory prints the heap per queued key. With these sizes, hash tables are sometimes nearly full,
// sometimes nearly empty.
func memory(w *report, _ int) {
	fmt.Fprintln(w, "bytes per queued key\tsetpoint\tclient-go\tratio\tmost\t\t")
	var ours, theirs float64
	ns := []int{50_000, 70_000, 100_000, 150_000, 200_000, 300_000, 400_000, 600_000, 800_000, 1_000_000}
	for _, n := range ns {
		a, b := perKey(makers[0], n), perKey(makers[1], n)
		ours, theirs = ours+a, theirs+b
		fmt.Fprintf(w, "%d keys\t%.0f\t%.0f\t%.2f\t\t\t\n", n, a, b, a/b)
	}
	fmt.Fprintf(w, "mean\t%.0f\t%.0f\t%.2f\t1.0\t%s\t\n", ours/float64(len(ns)), theirs/float64(len(ns)), ours/theirs, verdict(ours <= theirs))
}

func perKey(m maker, n int) float64 {
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return float64(s.HeapAlloc)
	}
	before := heap()
	q := m.make(time.Millisecond, plain)
	for _, k := range keys[:n] {
		q.Add(k)
	}
	after := heap()
	q.Close()
	runtime.KeepAlive(q)
	return (after - before) / float64(n)
}

// sizes prints the cost to add a key, take another and settle it while n are queued.
func sizes(w *report, rounds int) {
	fmt.Fprintln(w, "add, take, settle while queued\tsetpoint\tclient-go\tbare map\tbare array\tsetpoint, delayed add\tallocs\t")
	for _, n := range []int{1_000, 10_000, 100_000, 999_000} {
		var ours, theirs, bare, array, late []float64
		var allocs float64
		for range rounds {
			ours = append(ours, cycleAt(makers[0], n))
			theirs = append(theirs, cycleAt(makers[1], n))
			bare = append(bare, mapAt(n))
			array = append(array, arrayAt(n))
			r := delayedAt(n)
			late, allocs = append(late, r.ns), r.allocs
		}
		fmt.Fprintf(w, "%d\t%.0f ns\t%.0f ns\t%.0f ns\t%.0f ns\t%.0f ns\t%.2f\t\n",
			n, median(ours), median(theirs), median(bare), median(array), median(late), allocs)
	}
}

// cycleAt adds keys at the end and takes them at the front, in random memory order, as controllers
// do.
func cycleAt(m maker, n int) float64 {
	q := m.make(time.Millisecond, plain)
	defer q.Close()
	for _, k := range keys[:n] {
		q.Add(k)
	}
	const ops = 100_000
	next := n
	do := func(ops int) {
		for range ops {
			q.Add(keys[next%(n+1000)])
			next++
			q.Next(never)
		}
	}
	do(10_000)
	return timed(ops, func() { do(ops) }).ns
}

// mapAt is the lower bound of cycleAt for a Go map: add a key if missing, remove the oldest. It
// shows how much of the growth with n comes from processor caches.
func mapAt(n int) float64 {
	m := make(map[key]struct{}, n)
	for _, k := range keys[:n] {
		m[k] = struct{}{}
	}
	const ops = 100_000
	next := n
	do := func(ops int) {
		for range ops {
			k := keys[next%(n+1000)]
			if _, ok := m[k]; !ok {
				m[k] = struct{}{}
			}
			delete(m, keys[(next-n)%(n+1000)])
			next++
		}
	}
	do(10_000)
	return timed(ops, func() { do(ops) }).ns
}

// arrayAt is the lower bound of cycleAt for any hash table with 8 bytes per slot: hash both keys,
// and lock and access a slot for each.
func arrayAt(n int) float64 {
	size := 1
	for size < n*4/3 {
		size *= 2
	}
	slots := make([]uint64, size)
	seed := maphash.MakeSeed()
	var mu sync.Mutex
	touch := func(k key) {
		h := maphash.Comparable(seed, k)
		mu.Lock()
		slots[h&uint64(size-1)]++
		mu.Unlock()
	}
	const ops = 100_000
	next := n
	do := func(ops int) {
		for range ops {
			touch(keys[next%(n+1000)])
			touch(keys[(next-n)%(n+1000)])
			next++
		}
	}
	do(10_000)
	return timed(ops, func() { do(ops) }).ns
}

// delayedAt adds keys with a due time while n others wait, in O(log n).
func delayedAt(n int) result {
	q := newOurs(time.Millisecond, plain)
	defer q.Close()
	for i, k := range keys[:n] {
		q.AddAfter(k, time.Hour+time.Duration(i*7919%n)*time.Millisecond)
	}
	const ops = 20_000
	i := 0
	return timed(ops, func() {
		for range ops {
			i++
			q.AddAfter(keys[i*104729%n], time.Hour-time.Duration(i)*time.Microsecond)
		}
	})
}

// tenants prints when small tenants are served while a large one has 100,000 keys.
func tenants(w *report, _ int) {
	fmt.Fprintln(w, "999 tenants with 1 key, 1 with 100,000 before them\tlast small tenant served as number\tmost\t\t")
	var all []key
	for i := range many {
		all = append(all, key{Namespace: "large", Name: fmt.Sprint(i)})
	}
	for i := range 999 {
		all = append(all, key{Namespace: fmt.Sprintf("small-%d", i), Name: "only"})
	}
	for _, m := range makers {
		q := m.make(time.Millisecond, extras)
		for _, k := range all {
			q.Add(k)
		}
		for q.Len() < len(all) {
			time.Sleep(time.Millisecond)
		}
		last := 0
		for i := range all {
			q.Next(func(k key) bool {
				if k.Namespace != "large" {
					last = i + 1
				}
				return false
			})
		}
		q.Close()
		most, ok := "", ""
		if m.name == "setpoint" {
			most, ok = "1100", verdict(last <= 1100)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t\n", m.name, last, most, ok)
	}
}

// failures prints when the last of 10,000 keys that fail together is retried, with each framework's
// default.
func failures(w *report, _ int) {
	fmt.Fprintln(w, "10,000 keys fail together: the last is retried after\t")
	var worst time.Duration
	limiter := clientgo.DefaultTypedControllerRateLimiter[key]()
	for _, k := range keys[:10_000] {
		worst = max(worst, limiter.When(k))
	}
	fmt.Fprintf(w, "client-go's default limiter\t%v\n", worst.Round(time.Second))
	worst = 0
	q, err := workqueue.New(workqueue.Options[key]{})
	if err != nil {
		panic(err)
	}
	q.AddAll(keys[:10_000], workqueue.AddOptions{})
	for range 10_000 {
		item, _ := q.Get(background)
		d, _ := item.Retry(nil)
		worst = time.Duration(math.Max(float64(worst), float64(d)))
	}
	q.ShutDown()
	fmt.Fprintf(w, "setpoint's default\t%v\n", worst)
}
