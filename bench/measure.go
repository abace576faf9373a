// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// measurement is one way to use a queue. run returns the time and the allocations per operation.
type measurement struct {
	name string
	base time.Duration // first backoff
	run  func(q queue) result
	// The bounds of the result; 0 is no bound. plain and extras limit the time in these two modes,
	// as a multiple of client-go's. faster is how many times as fast as controller-runtime it must
	// be.
	plain, extras, faster float64
}

type result struct {
	ns, allocs float64
}

const many = 100_000

var measurements = []measurement{
	{"add, get, settle one", time.Millisecond, one, 0.8, 1.0, 10},
	{"fill 100,000", time.Millisecond, fill, 0.8, 1.0, 0},
	{"drain 100,000, 1 worker", time.Millisecond, drain(1), 0.8, 1.0, 5},
	{"drain 100,000, 8 workers", time.Millisecond, drain(8), 0.8, 1.0, 5},
	{"drain 100,000, 64 workers", time.Millisecond, drain(64), 0.8, 1.0, 5},
	{"duplicate adds", time.Millisecond, duplicates, 0.8, 1.0, 5},
	{"duplicate adds, new reasons", time.Millisecond, renewed, 0, 0, 0},
	{"100,000 delayed adds", time.Millisecond, delayed, 0.8, 1.0, 3},
	{"fail three times, succeed", time.Nanosecond, failing, 0.8, 1.0, 3},
}

var keys = func() []key {
	ks := make([]key, 1_000_000)
	for i := range ks {
		ks[i] = key{Namespace: fmt.Sprintf("namespace-%d", i%100), Name: fmt.Sprintf("object-%d", i)}
	}
	return ks
}()

func never(key) bool { return false }

// clock is the source of times. With -cpu it is the processor time of the whole process, including
// the queue's goroutines. Use that on a busy machine.
var clock = func() time.Duration { return time.Since(begun) }

var begun = time.Now()

func cpuClock() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// timed measures do, which performs n operations.
func timed(n int, do func()) result {
	runtime.GC()
	return timedLightly(n, do)
}

// timedLightly is timed without a garbage collection, for a do of a few milliseconds.
func timedLightly(n int, do func()) result {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := clock()
	do()
	ns := float64(clock() - start)
	runtime.ReadMemStats(&after)
	return result{ns / float64(n), float64(after.Mallocs-before.Mallocs) / float64(n)}
}

func one(q queue) result {
	const n = 200_000
	cycle := func(n int) {
		for i := range n {
			q.Add(keys[i&1023])
			q.Next(never)
		}
	}
	cycle(10_000)
	return timed(n, func() { cycle(n) })
}

func fill(q queue) result {
	warm(q)
	return timed(many, func() { addAll(q) })
}

// warm fills and drains the queue once, so that its memory is allocated.
func warm(q queue) {
	addAll(q)
	for range many {
		q.Next(never)
	}
}

func addAll(q queue) {
	for _, k := range keys[:many] {
		q.Add(k)
	}
	for q.Len() < many {
		time.Sleep(100 * time.Microsecond) // controller-runtime's adds take effect later
	}
}

func drain(workers int) func(queue) result {
	return func(q queue) result {
		warm(q)
		addAll(q)
		return timed(many, func() {
			// Shutdown cannot end the workers: controller-runtime drops keys then.
			var left atomic.Int64
			left.Store(many)
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						q.Next(never)
					}
				})
			}
			wg.Wait()
		})
	}
}

func duplicates(q queue) result {
	const n = 500_000
	for _, k := range keys[:1024] {
		q.Add(k)
	}
	for q.Len() < 1024 {
		time.Sleep(100 * time.Microsecond)
	}
	return timed(n, func() {
		for i := range n {
			q.Add(keys[i&1023])
		}
		_ = q.Len() // makes controller-runtime do what its adds have only noted
	})
}

// renewed is duplicates with a different reason each time, which must be recorded.
func renewed(q queue) result {
	if o, ok := q.(*ours); ok {
		q = &renewing{ours: o}
	}
	return duplicates(q)
}

func delayed(q queue) result {
	return timed(many, func() {
		for i, k := range keys[:many] {
			q.AddAfter(k, time.Hour+time.Duration(i*7919%many)*time.Millisecond)
		}
		_ = q.Len() // makes controller-runtime do what its adds have only noted
	})
}

func failing(q queue) result {
	const n = 20_000
	failures := make(map[key]int, n)
	fail := func(k key) bool {
		failures[k]++
		return failures[k] <= 3
	}
	round := func() {
		clear(failures)
		for _, k := range keys[:n] {
			q.Add(k)
		}
		for range 4 * n {
			q.Next(fail)
		}
	}
	round()
	return timed(4*n, round)
}
