// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// usage is the cost of one run.
type usage struct {
	Seconds   float64 // from the first client's creation to the last object's Reconcile
	Processor float64 // seconds in user mode; less noisy, without the API server's work
	Mallocs   float64
	Allocated float64 // bytes
	Peak      float64 // bytes, resident
	Row       string  `json:",omitempty"` // replaces the others, for upkeep
}

func (u usage) seconds() float64   { return u.Seconds }
func (u usage) processor() float64 { return u.Processor }
func (u usage) mallocs() float64   { return u.Mallocs }
func (u usage) allocated() float64 { return u.Allocated }
func (u usage) peak() float64      { return u.Peak }

func (u usage) String() string {
	return fmt.Sprintf("%.2f s, %.2f s of processor, %.2f M allocations, %.0f MB, peak %.0f MB", u.Seconds, u.Processor, u.Mallocs/1e6, u.Allocated/1e6, u.Peak/1e6)
}

func medianOf(us []usage) usage {
	of := func(f func(usage) float64) float64 {
		var vs []float64
		for _, u := range us {
			vs = append(vs, f(u))
		}
		return median(vs)
	}
	return usage{Seconds: of(usage.seconds), Processor: of(usage.processor), Mallocs: of(usage.mallocs), Allocated: of(usage.allocated), Peak: of(usage.peak)}
}

// main runs one contestant in a child and writes its usage.
func (p *informers) main() {
	u, err := p.measure(context.Background())
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(u)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p *informers) measure(ctx context.Context) (usage, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		return usage{}, err
	}
	if err := forgetPeak(); err != nil {
		return usage{}, err
	}
	cfg.QPS = -1 // no contestant is rate limited
	for _, c := range upkeep {
		if c.name == p.contestant {
			row, err := c.run(ctx, cfg)
			return usage{Row: row}, err
		}
	}
	for _, c := range contestants {
		if c.name == p.contestant {
			return p.race(ctx, &race{config: cfg, same: p.same, all: int64(p.objects), done: make(chan struct{})}, c)
		}
	}
	return usage{}, fmt.Errorf("there is no contestant %q", p.contestant)
}

func (p *informers) race(ctx context.Context, r *race, c contestant) (usage, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	profiled, err := p.startProfile()
	if err != nil {
		return usage{}, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	processor, start := userTime(), time.Now()
	ended := make(chan error, 1)
	go func() { ended <- c.run(ctx, r) }()
	select {
	case <-r.done:
	case err := <-ended:
		return usage{}, errors.Join(errors.New("the contestant ended before all objects were reconciled"), err)
	}
	u := usage{Seconds: time.Since(start).Seconds(), Processor: (userTime() - processor).Seconds()}
	runtime.ReadMemStats(&after)
	u.Mallocs, u.Allocated = float64(after.Mallocs-before.Mallocs), float64(after.TotalAlloc-before.TotalAlloc)
	if u.Peak, err = peak(); err != nil {
		return usage{}, err
	}
	if err := profiled(); err != nil {
		return usage{}, err
	}
	cancel()
	return u, <-ended
}

// forgetPeak frees the memory of other parts and resets the kernel's peak counter (Linux only).
func forgetPeak() error {
	keys = nil
	debug.FreeOSMemory()
	return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

// userTime returns the process's user mode time.
func userTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano())
}

// peak returns the maximum resident memory of the process in bytes.
func peak() (float64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, after, _ := bytes.Cut(status, []byte("VmHWM:"))
	line, _, _ := bytes.Cut(after, []byte(" kB"))
	kb, err := strconv.ParseFloat(string(bytes.TrimSpace(line)), 64)
	return kb * 1024, err
}

// startProfile starts profiles, if requested. The returned function writes them.
func (p *informers) startProfile() (stop func() error, err error) {
	if p.profile == "" {
		return func() error { return nil }, nil
	}
	prefix := strings.NewReplacer(", ", "-", " ", "-").Replace(fmt.Sprintf("%s same=%t ", p.contestant, p.same))
	create := func(kind string) (*os.File, error) { return os.Create(filepath.Join(p.profile, prefix+kind+".pprof")) }
	runtime.MemProfileRate = 4096
	processor, err := create("cpu")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(processor); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		runtime.GC() // the profile shows the heap after the last collection
		memory, err := create("memory")
		if err == nil {
			err = pprof.Lookup("allocs").WriteTo(memory, 0)
		}
		return errors.Join(err, processor.Close(), memory.Close())
	}, nil
}
