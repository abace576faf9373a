// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/manager"
)

// world is an API server with persons, and an operator of two replicas.
type world struct {
	plane    plane
	client   *client.Client // of the persons and the judge
	replicas []*replica
	log      *lines
	births   *births
	alone    bool // only one trouble strikes, and time is virtual
	running  sync.WaitGroup
	mu       sync.Mutex                    // guards outdated
	outdated map[*replica]*manager.Manager // processes with caches from before a restore
	stop     context.CancelFunc
}

func newWorld(p plane) (*world, error) {
	c, err := client.New(p.admin(), client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &world{plane: p, client: c, log: &lines{count: map[line]int{}}, births: &births{count: map[string]int{}}, stop: stop, outdated: map[*replica]*manager.Manager{}}
	for _, id := range []string{"one", "two"} {
		r := newReplica(id, p, w.log, w.births)
		w.replicas = append(w.replicas, r)
		w.running.Go(func() { r.run(ctx) })
	}
	return w, nil
}

func (w *world) close() {
	w.stop()
	w.running.Wait()
	w.client.Close()
}

func (w *world) outdate(r *replica, m *manager.Manager) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outdated[r] = m
}

// notices reports whether a process can notice a restore: it has had synced caches since before.
func (w *world) notices() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r, of := range w.outdated {
		if m, _ := r.process(); m == of {
			return true
		}
	}
	return false
}

func (w *world) some(r *rand.Rand) *replica { return w.replicas[r.IntN(len(w.replicas))] }

// ofReplica reports whether a request is an operator's: its user agent begins with its name.
func (w *world) ofReplica(r *fault.Request) bool { return strings.HasPrefix(r.UserAgent, "mix ") }

// set writes a board's value as a person does. It reports whether it was written.
func (w *world) set(name string, value any) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if n, ok := value.(int); ok {
		value = fmt.Sprint(n)
	}
	d, err := w.client.Dynamic()
	if err != nil {
		return false
	}
	all := d.Resource(boards).Namespace(namespace)
	patch := fmt.Appendf(nil, "{\"value\":%q}", value)
	if n, ok := value.(int64); ok {
		patch = fmt.Appendf(nil, "{\"value\":%d}", n)
	}
	_, err = all.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		u := &unstructured.Unstructured{Object: map[string]any{"value": value}}
		u.SetAPIVersion(boards.GroupVersion().String())
		u.SetKind("Board")
		u.SetName(name)
		_, err = all.Create(ctx, u, metav1.CreateOptions{})
	}
	return err == nil
}

func (w *world) remove(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if d, err := w.client.Dynamic(); err == nil {
		// It fails if the board does not exist.
		_ = d.Resource(boards).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
}

// leader returns the holder of the Lease.
func (w *world) leader() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l, err := client.For[*coordinationv1.Lease](w.client).GetLive(ctx, types.NamespacedName{Namespace: namespace, Name: "mix"})
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// observes returns the value of the last complete Reconcile of a board.
func (w *world) observes(name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d, err := w.client.Dynamic()
	if err != nil {
		return err.Error()
	}
	b, err := d.Resource(boards).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return b.GetAnnotations()[observed]
}

// work is what persons do until stop is closed.
func (w *world) work(r *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		name := fmt.Sprintf("board-%d", r.IntN(6))
		if r.IntN(4) == 0 {
			w.remove(name)
		} else {
			w.set(name, r.IntN(1<<30))
		}
		w.plane.pause(between(r, 100*time.Millisecond, 30*time.Second))
	}
}

// judge returns what is wrong at the API server.
func (w *world) judge() (wrong []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	d, err := w.client.Dynamic()
	if err != nil {
		return []string{err.Error()}
	}
	list, err := d.Resource(boards).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	maps, secrets := map[types.UID][]string{}, map[types.UID][]string{}
	for m, err := range client.For[*corev1.ConfigMap](w.client).ListLive(ctx, client.ListOptions{Namespace: namespace}) {
		if err != nil {
			return []string{err.Error()}
		}
		if o := metav1.GetControllerOf(m); o != nil {
			maps[o.UID] = append(maps[o.UID], m.Data["value"])
		}
	}
	for s, err := range client.For[*corev1.Secret](w.client).ListLive(ctx, client.ListOptions{Namespace: namespace}) {
		if err != nil {
			return []string{err.Error()}
		}
		if o := metav1.GetControllerOf(s); o != nil {
			secrets[o.UID] = append(secrets[o.UID], string(s.Data["value"]))
		}
	}
	for _, b := range list.Items {
		value, isText, _ := unstructured.NestedString(b.Object, "value")
		if !isText { // a restore has lost the correction
			w.set(b.GetName(), "whole")
		}
		want := []string{value}
		if m, s := maps[b.GetUID()], secrets[b.GetUID()]; b.GetDeletionTimestamp() != nil || !slices.Equal(m, want) || !slices.Equal(s, want) ||
			b.GetAnnotations()[observed] != value && !strings.HasPrefix(value, bad) {
			wrong = append(wrong, fmt.Sprintf("%s %s %q, observed %q, deleted %t: config maps %q, secrets %q", b.GetName(), b.GetUID(), value,
				b.GetAnnotations()[observed], b.GetDeletionTimestamp() != nil, m, s))
		}
		delete(maps, b.GetUID())
		delete(secrets, b.GetUID())
	}
	for uid, m := range maps {
		wrong = append(wrong, fmt.Sprintf("config maps of a board %s that does not exist: %q", uid, m))
	}
	for uid, s := range secrets {
		wrong = append(wrong, fmt.Sprintf("secrets of a board %s that does not exist: %q", uid, s))
	}
	return wrong
}
