// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// moment is a version, after some restores of the server.
type moment struct {
	epoch   int
	version uint64
}

func (m moment) compare(other moment) int {
	return cmp.Or(cmp.Compare(m.epoch, other.epoch), cmp.Compare(m.version, other.version))
}

// change is a version of an object.
type change struct {
	moment
	kind     watch.EventType
	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
	initial  bool // it existed before the run
}

func (c change) String() string {
	return fmt.Sprintf("%8d %-8s %s %s/%s", c.version, c.kind, c.resource.Resource, c.object.GetNamespace(), c.object.GetName())
}

// history records every version of the kinds that were written.
type history struct {
	api    dynamic.Interface
	from   string // the version at which the run began
	wanted chan schema.GroupVersionResource

	mu       sync.Mutex
	epoch    int
	followed map[schema.GroupResource]bool
	before   map[schema.GroupVersionResource][]unstructured.Unstructured // what exists at the begin
	changes  []change
	errs     []error
}

func newHistory(api dynamic.Interface, from string) *history {
	return &history{
		api: api, from: from, wanted: make(chan schema.GroupVersionResource, kinds), followed: map[schema.GroupResource]bool{},
		before: map[schema.GroupVersionResource][]unstructured.Unstructured{},
	}
}

// follow records a kind, with its past since the begin of the run.
func (h *history) follow(of schema.GroupVersionResource) {
	h.mu.Lock()
	known := h.followed[of.GroupResource()]
	h.followed[of.GroupResource()] = true
	h.mu.Unlock()
	if !known {
		h.wanted <- of
	}
}

// run records until ctx is done.
func (h *history) run(ctx context.Context) {
	var recording sync.WaitGroup
	defer recording.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case of := <-h.wanted:
			recording.Go(func() {
				if err := h.record(ctx, of); err != nil && ctx.Err() == nil {
					h.mu.Lock()
					defer h.mu.Unlock()
					h.errs = append(h.errs, fmt.Errorf("recording %s: %w", of.Resource, err))
				}
			})
		}
	}
}

func (h *history) record(ctx context.Context, of schema.GroupVersionResource) error {
	list, err := h.api.Resource(of).List(ctx, metav1.ListOptions{ResourceVersion: h.from, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if apierrors.IsResourceExpired(err) { // the server was restored before the first write
		list, err = h.api.Resource(of).List(ctx, metav1.ListOptions{})
	}
	if err != nil {
		return err
	}
	known := map[string]*unstructured.Unstructured{}
	version := list.GetResourceVersion()
	h.mu.Lock()
	h.before[of] = list.Items
	for i := range list.Items {
		o := &list.Items[i]
		known[o.GetNamespace()+"/"+o.GetName()] = o
		h.changes = append(h.changes, change{moment{}, watch.Added, of, o, true})
	}
	h.mu.Unlock()
	for ctx.Err() == nil {
		h.watch(ctx, of, version, known)
		if version, err = h.relist(ctx, of, known); err != nil { // the server was restored
			return err
		}
	}
	return nil
}

// watch records until the watch ends.
func (h *history) watch(ctx context.Context, of schema.GroupVersionResource, version string, known map[string]*unstructured.Unstructured) {
	w, err := h.api.Resource(of).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		obj, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error {
			return
		}
		h.add(of, e.Type, obj, known)
	}
}

// relist records what a list shows in another way than before.
func (h *history) relist(ctx context.Context, of schema.GroupVersionResource, known map[string]*unstructured.Unstructured) (version string, err error) {
	list, err := h.api.Resource(of).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	gone := map[string]*unstructured.Unstructured{}
	for k, o := range known {
		gone[k] = o
	}
	for i := range list.Items {
		o := &list.Items[i]
		key := o.GetNamespace() + "/" + o.GetName()
		before := gone[key]
		delete(gone, key)
		switch {
		case before == nil || before.GetUID() != o.GetUID():
			h.add(of, watch.Added, o, known)
		case before.GetResourceVersion() != o.GetResourceVersion():
			h.add(of, watch.Modified, o, known)
		}
	}
	for _, o := range gone {
		o = o.DeepCopy()
		o.SetResourceVersion("") // before what is new since the restore
		h.add(of, watch.Deleted, o, known)
	}
	return list.GetResourceVersion(), nil
}

func (h *history) add(of schema.GroupVersionResource, kind watch.EventType, o *unstructured.Unstructured, known map[string]*unstructured.Unstructured) {
	key := o.GetNamespace() + "/" + o.GetName()
	if known[key] = o; kind == watch.Deleted {
		delete(known, key)
	}
	version, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, change{moment{h.epoch, version}, kind, of, o, false})
}

func (h *history) restored() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epoch++
}

func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.changes)
}

// newest returns the moment of the newest change.
func (h *history) newest() (m moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.changes {
		if c.compare(m) > 0 {
			m = c.moment
		}
	}
	return m
}

// all returns the changes in the order of their versions.
func (h *history) all() []change {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.changes)
	slices.SortStableFunc(all, func(a, b change) int {
		return a.compare(b.moment)
	})
	return all
}
