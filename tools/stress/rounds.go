// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/tools/internal/child"
)

// A run is one run of the tests of a package.
type run struct {
	*pkg

	file  string // the test binary
	race  bool
	procs int
	seed  int64
}

// stress builds and runs all tests. It returns an error if that is not possible. The results
// contain the failed runs.
func (o *options) stress(ctx context.Context, w io.Writer, results *table) (err error) {
	if o.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "stress-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	packages, err := o.list(ctx, dir)
	if err != nil {
		return err
	}
	left := o.bound
	for _, race := range []bool{false, true} {
		rounds := o.runs
		if race {
			rounds = o.race
		}
		if rounds == 0 {
			continue
		}
		files, err := o.build(ctx, w, dir, packages, race)
		if err != nil {
			return err
		}
		began := time.Now()
		err = o.play(ctx, w, dir, began.Add(left), o.plan(packages, files, rounds, race), results)
		if err != nil {
			return err
		}
		left -= time.Since(began)
		for _, f := range files {
			_ = os.Remove(f) // a test binary takes 40 MB and more
		}
	}
	return nil
}

// plan returns the runs of all rounds, in order.
func (o *options) plan(packages []pkg, files []string, rounds int, race bool) []run {
	var runs []run
	for round := range rounds {
		for n := range packages {
			i, turn := (o.first+n)%len(packages), round
			if packages[i].cluster {
				if round%o.light != 0 {
					continue
				}
				turn = round / o.light
			}
			runs = append(runs, run{&packages[i], files[i], race, o.procs[turn%len(o.procs)], o.seed + int64(len(runs))})
		}
	}
	return runs
}

// build returns the test binary of each package.
func (o *options) build(ctx context.Context, w io.Writer, dir string, packages []pkg, race bool) ([]string, error) {
	fmt.Fprintf(w, "building the tests of %d packages%s\n", len(packages), map[bool]string{true: " with the race detector"}[race])
	files := make([]string, len(packages))
	err := each(o.jobs, len(packages), func(i int) error {
		own, err := os.MkdirTemp(dir, "")
		if err != nil {
			return err
		}
		// The name appears in user agents.
		files[i] = filepath.Join(own, filepath.Base(packages[i].dir)+".test")
		return packages[i].build(ctx, dir, files[i], race)
	})
	return files, err
}

// play runs the tests, next to the hogs, until all have run or the time is up.
func (o *options) play(ctx context.Context, w io.Writer, dir string, end time.Time, runs []run, results *table) error {
	fmt.Fprintf(w, "%d runs, %d at a time, next to %d hogs; the first shuffles with seed %d\n", len(runs), o.jobs, o.hogs, o.seed)
	defer hog(ctx, o.hogs)()
	return each(o.jobs, len(runs), func(i int) error {
		r := &runs[i]
		if time.Now().After(end) {
			results.leaveOut(r)
			return nil
		}
		tmp, err := os.MkdirTemp(dir, "")
		if err != nil {
			return err
		}
		began := time.Now()
		out, err := o.command(ctx, r, tmp).CombinedOutput()
		took := time.Since(began)
		if err := os.RemoveAll(tmp); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		results.add(w, o, r, took, out, err)
		return nil
	})
}

func (o *options) command(ctx context.Context, r *run, tmp string) *exec.Cmd {
	args := []string{"-test.count=1", "-test.timeout=" + o.timeout.String(), "-test.shuffle=" + strconv.FormatInt(r.seed, 10)}
	if o.run != "" {
		args = append(args, "-test.run="+o.run)
	}
	return child.Command(ctx, r.dir, tmp, slices.Concat(r.env, []string{"GOMAXPROCS=" + strconv.Itoa(r.procs)}), r.file, args...)
}

// each calls f for 0 to n-1, jobs of them concurrently, and returns the first error. After an error
// it starts no more.
func each(jobs, n int, f func(int) error) error {
	var mu sync.Mutex // guards next and first
	var first error
	next := 0
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if first != nil || next == n {
			return 0, false
		}
		next++
		return next - 1, true
	}
	var working sync.WaitGroup
	for range jobs {
		working.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if err := f(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	working.Wait()
	return first
}

// hog starts goroutines that use a CPU each, until stop is called. They are not processes, so they
// end with this one.
func hog(ctx context.Context, n int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	before := runtime.GOMAXPROCS(max(runtime.NumCPU(), n+2)) // 2 for goroutines that wait for tests
	var hogs sync.WaitGroup
	for range n {
		hogs.Go(func() {
			for x := uint64(1); ctx.Err() == nil; {
				for range 1 << 16 {
					x = x*6364136223846793005 + 1442695040888963407
				}
			}
		})
	}
	return func() {
		cancel()
		hogs.Wait()
		runtime.GOMAXPROCS(before)
	}
}
