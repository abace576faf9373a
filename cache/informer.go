// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
)

// informer is a client-go informer with a state that can be asked for.
type informer struct {
	gvk     schema.GroupVersionKind
	shared  toolscache.SharedIndexInformer
	hooks   *hook.Cache
	lw      *listerWatcher
	mapping atomic.Pointer[meta.RESTMapping] // how the kind was served last; set before it is synced
	stopped chan struct{}                    // closed by run

	mu    sync.Mutex // guards what follows
	phase hook.Phase
	err   error
	since time.Time
}

func newInformer(b Backend, h *hook.Cache, gvk schema.GroupVersionKind, example Object) *informer {
	i := &informer{gvk: gvk, hooks: h, stopped: make(chan struct{}), phase: hook.NotStarted, since: time.Now()}
	i.lw = newListerWatcher(b, gvk, i.report, i.mapping.Store)
	i.shared = toolscache.NewSharedIndexInformerWithOptions(i.lw.listWatch(), example, toolscache.SharedIndexInformerOptions{
		Indexers:          toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc},
		ObjectDescription: gvk.String(),
	})
	_ = i.shared.SetWatchErrorHandlerWithContext(logUnlessStopped) // cannot fail: it has not started
	return i
}

// logUnlessStopped keeps a stop from being logged as a failed watch.
func logUnlessStopped(ctx context.Context, r *toolscache.Reflector, err error) {
	if ctx.Err() == nil {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// run runs the informer until ctx is done, and joins it.
func (i *informer) run(ctx context.Context) {
	i.set(hook.Syncing, nil)
	var noticing sync.WaitGroup
	noticing.Go(func() { i.noticeSync(ctx) })
	i.shared.RunWithContext(ctx)
	noticing.Wait()
	i.lw.join()
	i.set(hook.Stopped, nil)
	close(i.stopped)
}

// noticeSync takes down when the informer was synced.
func (i *informer) noticeSync(ctx context.Context) {
	select {
	case <-i.synced():
	case <-ctx.Done():
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.phase == hook.Syncing {
		i.phase, i.since = hook.Synced, time.Now()
	}
}

// report takes down what the ListerWatcher meets: Waiting or Failing with the error, or Syncing when a request went well.
func (i *informer) report(phase hook.Phase, err error) {
	if phase == hook.Syncing && i.hasSynced() {
		phase = hook.Synced
	}
	if news := i.set(phase, err); news && i.hooks != nil && i.hooks.InformerState != nil {
		i.hooks.InformerState(i.state())
	}
}

// set says whether that was news of trouble, or of its end.
func (i *informer) set(phase hook.Phase, err error) (news bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if phase == i.phase && (err == nil || err.Error() == i.err.Error()) {
		return false
	}
	news = err != nil || i.err != nil
	i.phase, i.err, i.since = phase, err, time.Now()
	return news
}

func (i *informer) state() hook.InformerState {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := hook.InformerState{Kind: i.gvk.Kind + "." + i.gvk.Version, Phase: i.phase, Err: i.err, Since: i.since}
	if i.gvk.Group != "" {
		s.Kind += "." + i.gvk.Group
	}
	if s.Phase == hook.Syncing && i.hasSynced() {
		s.Phase = hook.Synced // noticeSync is about to say so
	}
	return s
}

// synced is closed when the initial list is in the store.
func (i *informer) synced() <-chan struct{} { return i.shared.HasSyncedChecker().Done() }

func (i *informer) hasSynced() bool {
	select {
	case <-i.synced():
		return true
	default:
		return false
	}
}
