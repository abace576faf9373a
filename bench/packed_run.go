// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/hook"
)

// packedOrders are what a child measures.
type packedOrders struct {
	Job             job
	Contestant      string
	Kind            string
	Objects, Events int
	Server          string // URL
	Profile         string // directory, or empty
}

// figures are the results of a child, by name.
type figures map[string]float64

const (
	heapFigure     = "heap"    // bytes, live
	peakFigure     = "peak"    // bytes, resident
	secondsFigure  = "seconds" // until all are synced or reconciled
	cpuFigure      = "cpu"     // seconds of processor until then
	updateFigure   = "update"  // seconds of processor per event
	droppedFigure  = "dropped" // seconds of processor per event
	readFigure     = "read"    // seconds of processor per Get, in random order
	listFigure     = "list"    // seconds per list
	listCPUFigure  = "listcpu" // seconds of processor per list
	bytesFigure    = "bytes"   // of the kept objects
	decodesFigure  = "decodes"
	receivedFigure = "received" // bytes, of the first sync
	updatesFigure  = "updates"  // bytes, of all updates
)

// packedRun is the run of a contestant in a child.
type packedRun struct {
	packedOrders

	config *rest.Config
	kind   *packedKind
	wrong  chan error    // a read object is not what the server sent
	ready  chan struct{} // closed when the objects are there, and reconciled if that is the job

	get  func(ctx context.Context, k key) (cache.Object, error) // or nil
	list func(ctx context.Context, node string) (n int, first crclient.Object, err error)

	states func() []hook.InformerState
	slots  []uint8   // of a lean contestant
	kept   *[4]int64 // how many objects it reconciles, by generation

	received atomic.Int64     // bytes
	counts   [4]atomic.Int64  // objects reconciled, by generation
	reached  [4]chan struct{} // closed when they are as many as expected
}

// expected returns the number of objects to reconcile at a generation.
func (r *packedRun) expected(generation int64) int64 {
	if r.kept != nil {
		return r.kept[generation]
	}
	return [4]int64{1: int64(r.Objects), 2: int64(r.Events), 3: 1}[generation]
}

// reconciled counts an object that was read, and compares a few with what the server sent.
func (r *packedRun) reconciled(o crclient.Object) error {
	g := o.GetGeneration()
	if g < 1 || g > 3 {
		return fmt.Errorf("%s/%s has the generation %d", o.GetNamespace(), o.GetName(), g)
	}
	if i, _ := indexOf(o); i%max(1, r.Objects/20) == 0 {
		if err := r.same(o); err != nil {
			select {
			case r.wrong <- err:
			default:
			}
			return err
		}
	}
	if r.counts[g].Add(1) == r.expected(g) {
		close(r.reached[g])
	}
	return nil
}

// main runs in the child and prints its figures.
func (p *packed) main() {
	var o packedOrders
	err := json.Unmarshal([]byte(p.child), &o)
	var f figures
	if err == nil {
		f, err = o.measure(context.Background())
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (o packedOrders) measure(ctx context.Context) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	r := &packedRun{packedOrders: o, config: &rest.Config{Host: o.Server, QPS: -1}, kind: packedKindOf(o.Kind), wrong: make(chan error, 1), ready: make(chan struct{})}
	for i := range r.reached {
		r.reached[i] = make(chan struct{})
	}
	r.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, &r.received} })
	if o.Job == work || o.Job == lean || o.Job == operator {
		r.ready = r.reached[1]
	}
	if o.Profile != "" {
		runtime.MemProfileRate = 4096
	}
	if err := forgetPeak(); err != nil {
		return nil, err
	}
	if strings.HasPrefix(o.Contestant, leanName) || o.Contestant == leanDecodedName {
		if err := r.share(); err != nil {
			return nil, err
		}
	}
	for _, c := range packedContestants {
		if do := c.jobs[o.Job]; c.name == o.Contestant && do != nil {
			ended := make(chan error, 1)
			f, start, spent := figures{}, time.Now(), cpuClock()
			go func() { ended <- do(ctx, r) }()
			if err := r.until(ctx, "sync", r.ready, ended); err != nil {
				return nil, err
			}
			f[secondsFigure], f[cpuFigure] = time.Since(start).Seconds(), (cpuClock() - spent).Seconds()
			err := r.more(ctx, f, ended)
			cancel()
			return f, errors.Join(err, <-ended)
		}
	}
	return nil, fmt.Errorf("no contestant %q has the job %q", o.Contestant, o.Job)
}

// until waits for a phase, which it profiles.
func (r *packedRun) until(ctx context.Context, phase string, done <-chan struct{}, ended <-chan error) error {
	stop, err := r.profileCPU(phase)
	if err != nil {
		return err
	}
	select {
	case <-done:
		return stop()
	case err := <-r.wrong:
		return fmt.Errorf("%s: %w", r.Contestant, err)
	case err := <-ended:
		return errors.Join(fmt.Errorf("%s ended before the end of phase %s", r.Contestant, phase), err)
	case <-ctx.Done():
		return fmt.Errorf("%s: phase %s took too long: reconciled %d, %d and %d objects", r.Contestant, phase, r.counts[1].Load(), r.counts[2].Load(), r.counts[3].Load())
	}
}

// more measures what comes after the initial list.
func (r *packedRun) more(ctx context.Context, f figures, ended <-chan error) (err error) {
	if f[peakFigure], err = peak(); err != nil {
		return err
	}
	switch r.Job {
	case lean:
		f[heapFigure], f[receivedFigure] = liveHeap(), float64(r.received.Load())
		for _, s := range r.states() {
			f[bytesFigure], f[decodesFigure] = float64(s.Bytes), float64(s.Decodes)
			if n := r.expected(1); s.Storage == "packed" && s.Decodes != n {
				return fmt.Errorf("%s decoded %d times instead of %d", r.Contestant, s.Decodes, n)
			}
		}
		err := r.push(ctx, f, ended)
		f[updatesFigure] = float64(r.received.Load()) - f[receivedFigure]
		return err
	case work:
		if err := r.push(ctx, f, ended); err != nil || r.get == nil {
			return err
		}
		return r.readAll(ctx, f)
	case index:
		return r.listAll(ctx, f)
	}
	f[heapFigure] = liveHeap()
	if r.Profile == "" {
		return nil
	}
	return writeHeapProfile(r.profileOf("heap"))
}

// push lets the server send updates, and then statuses that a predicate drops.
func (r *packedRun) push(ctx context.Context, f figures, ended <-chan error) error {
	for _, phase := range []struct {
		figure     string
		state      state
		generation int64
	}{{updateFigure, changed, 2}, {droppedFigure, statusOnly, 3}} {
		runtime.GC()
		spent := cpuClock()
		if err := r.post(ctx, phase.state); err != nil {
			return err
		}
		if err := r.until(ctx, phase.figure, r.reached[phase.generation], ended); err != nil {
			return err
		}
		f[phase.figure] = (cpuClock() - spent).Seconds() / float64(r.Events)
	}
	for g := int64(1); g <= 3; g++ {
		if n := r.counts[g].Load(); n != r.expected(g) {
			return fmt.Errorf("%s reconciled %d objects at generation %d instead of %d", r.Contestant, n, g, r.expected(g))
		}
	}
	return nil
}

// readAll reads each object once, in random order, so that no read finds what another has decoded.
func (r *packedRun) readAll(ctx context.Context, f figures) error {
	keys := make([]key, r.Objects)
	for n, i := range rand.New(rand.NewPCG(1, 1)).Perm(r.Objects) { //nolint:gosec // no secrets
		o := packedMeta(i, created)
		keys[n] = key{Namespace: o.Namespace, Name: o.Name}
	}
	runtime.GC()
	spent := cpuClock()
	for _, k := range keys {
		if _, err := r.get(ctx, k); err != nil {
			return err
		}
	}
	f[readFigure] = (cpuClock() - spent).Seconds() / float64(len(keys))
	return nil
}

func (r *packedRun) post(ctx context.Context, s state) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/push?state=%d", r.Server, s), http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}

// listAll lists the objects of each node, three times.
func (r *packedRun) listAll(ctx context.Context, f figures) error {
	const passes = 3
	var first [nodes]crclient.Object
	all := func() error {
		for i := range nodes {
			n, o, err := r.list(ctx, nodeOf(i))
			if err != nil {
				return err
			}
			first[i] = o
			if most := r.Objects/nodes + 1; n < r.Objects/nodes || n > most {
				return fmt.Errorf("%s has %d objects instead of %d", nodeOf(i), n, most)
			}
		}
		return nil
	}
	if err := all(); err != nil { // controller-runtime and setpoint may begin an index now
		return err
	}
	stop, err := r.profileCPU(listFigure)
	if err != nil {
		return err
	}
	runtime.GC()
	start, spent := time.Now(), cpuClock()
	for range passes {
		if err := all(); err != nil {
			return err
		}
	}
	f[listFigure], f[listCPUFigure] = time.Since(start).Seconds()/(passes*nodes), (cpuClock()-spent).Seconds()/(passes*nodes)
	for _, o := range first {
		if err := r.same(o); err != nil {
			return err
		}
	}
	return stop()
}

// profileCPU starts a profile of a phase, if profiles are wanted.
func (r *packedRun) profileCPU(phase string) (stop func() error, err error) {
	if r.Profile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(r.profileOf(phase + "-cpu"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

func (r *packedRun) profileOf(what string) string {
	name := fmt.Sprintf("%s-%s-%s-%s.pprof", r.Job, r.Kind, r.Contestant, what)
	return filepath.Join(r.Profile, strings.NewReplacer(", ", "-", " ", "-").Replace(name))
}
