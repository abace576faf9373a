// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// outageClient creates, changes and deletes lamps, one after the other, and occasionally damages
// the operator's objects. It retries each request until it succeeds, so it knows the final state.
type outageClient struct {
	dynamic   dynamic.Interface
	namespace string
	history   *history
	random    *rand.Rand

	wanted map[string]int // the watts of each lamp; 0: there is none
	next   int
}

// churn does one operation after the other until over is closed, and finishes what it has begun.
func (c *outageClient) churn(ctx context.Context, over <-chan struct{}) {
	names := make([]string, 0, len(c.wanted))
	for name := range c.wanted {
		names = append(names, name)
	}
	for {
		lapse(ctx, time.Duration(5+c.random.IntN(60))*time.Millisecond)
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		default:
		}
		name := names[c.random.IntN(len(names))]
		c.next++
		switch what := c.random.IntN(10); {
		case c.wanted[name] == 0:
			c.create(ctx, name, c.next, over)
		case what < 5:
			c.change(ctx, name, c.next)
		case what < 8:
			c.delete(ctx, name)
		default:
			c.spoil(ctx, name, what == 9)
		}
	}
}

func (c *outageClient) lamps() dynamic.ResourceInterface {
	return c.dynamic.Resource(lamps).Namespace(c.namespace)
}

// create creates a lamp, unless over is closed before the previous one of that name is gone.
func (c *outageClient) create(ctx context.Context, name string, watts int, over <-chan struct{}) {
	c.wanted[name] = watts
	lamp := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lamps.GroupVersion().String(), "kind": "Lamp", "metadata": map[string]any{"name": name}, "watts": int64(watts),
	}}
	c.until(ctx, name, fmt.Sprint("create watts=", watts), func() (done bool, err error) {
		_, err = c.lamps().Create(ctx, lamp, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err == nil, err
		}
		// Of an attempt before, or still being deleted.
		is, err := c.lamps().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if is.GetDeletionTimestamp() == nil {
			return true, nil
		}
		select {
		case <-over:
			c.wanted[name] = 0
			return true, nil
		default:
			return false, nil
		}
	})
}

func (c *outageClient) change(ctx context.Context, name string, watts int) {
	c.until(ctx, name, fmt.Sprint("change watts=", watts), func() (bool, error) {
		_, err := c.lamps().Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"watts":%d}`, watts), metav1.PatchOptions{})
		return err == nil, err
	})
	c.wanted[name] = watts
}

// delete has a version precondition: otherwise an API server that reads an object without
// finalizers deletes it even if one is added meanwhile.
func (c *outageClient) delete(ctx context.Context, name string) {
	c.until(ctx, name, "delete", func() (bool, error) {
		is, err := c.lamps().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && is.GetDeletionTimestamp() != nil {
			return true, nil
		}
		if err == nil {
			version := is.GetResourceVersion()
			err = c.lamps().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
		}
		return err == nil, err
	})
	c.wanted[name] = 0
}

// spoil changes or deletes a lamp's ConfigMap, if it exists.
func (c *outageClient) spoil(ctx context.Context, name string, remove bool) {
	maps := c.dynamic.Resource(configMaps).Namespace(c.namespace)
	c.until(ctx, name, fmt.Sprintf("spoil the map, remove=%t", remove), func() (done bool, err error) {
		if remove {
			err = maps.Delete(ctx, name, metav1.DeleteOptions{})
		} else {
			_, err = maps.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"watts":"spoilt"}}`), metav1.PatchOptions{})
		}
		return err == nil || apierrors.IsNotFound(err), err
	})
}

// until retries a request until it succeeds.
func (c *outageClient) until(ctx context.Context, name, what string, do func() (done bool, err error)) {
	for ctx.Err() == nil {
		done, err := do()
		if err != nil || done {
			c.history.note(name, "CLIENT %s: %v", what, err)
		}
		if done {
			return
		}
		lapse(ctx, 200*time.Millisecond)
	}
}

// logCounter counts the lines of a log and discards them.
type logCounter struct{ *logCounts }

type logCounts struct {
	mu     sync.Mutex // guards what follows
	lines  int
	outage []map[string]int // by message, since each outage began
}

// Enabled implements slog.Handler.
func (l logCounter) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (l logCounter) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines++
	if n := len(l.outage); n > 0 {
		l.outage[n-1][r.Level.String()+" "+r.Message]++
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (l logCounter) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l logCounter) WithGroup(string) slog.Handler { return l }

func (l *logCounts) begins() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outage = append(l.outage, map[string]int{})
}

// worst returns the most lines in one outage, and the most frequent ones.
func (l *logCounts) worst() (most int, of map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, by := range l.outage {
		all := 0
		for _, n := range by {
			all += n
		}
		if all > most {
			most, of = all, by
		}
	}
	return most, of
}

// judge compares all objects with the wanted state.
func (l *lane) judge(ctx context.Context) (all []difference, err error) {
	state := map[schema.GroupVersionResource][]unstructured.Unstructured{}
	for r, namespace := range l.resources() {
		list, err := l.dynamic.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		state[r] = list.Items
	}
	live := map[string]*unstructured.Unstructured{}
	owners := map[types.UID]string{}
	for i := range state[lamps] {
		lamp := &state[lamps][i]
		live[lamp.GetName()], owners[lamp.GetUID()] = lamp, lamp.GetName()
	}
	had := map[string]int{} // how many things of a resource a lamp has
	for r, objects := range state {
		for i := range objects {
			obj := &objects[i]
			if r == lamps || obj.GetName() == "kube-root-ca.crt" {
				continue
			}
			name, uid := ownedBy(obj)
			if owners[uid] == "" {
				all = append(all, difference{name, fmt.Sprintf("orphan: %s %s %s of lamp %s %s", r.Resource, obj.GetName(), short(obj.GetUID()), name, short(uid)), false})
				continue
			}
			had[r.Resource+" "+name]++
		}
	}
	for _, c := range l.clients {
		for name, watts := range c.wanted {
			all = append(all, l.judgeLamp(name, watts, live[name], state[configMaps], had)...)
		}
	}
	return all, nil
}

// difference is a problem of a lamp or its objects.
type difference struct {
	lamp, what string
	lasting    bool // it cannot come right any more
}

func ownedBy(obj *unstructured.Unstructured) (name string, uid types.UID) {
	if uid := obj.GetLabels()[ofUID]; uid != "" {
		return obj.GetLabels()[ofLamp], types.UID(uid)
	}
	if owner := metav1.GetControllerOf(obj); owner != nil {
		return owner.Name, owner.UID
	}
	return "nobody's", ""
}
