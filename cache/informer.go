// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
)

// informer is a client-go informer with a state that can be asked for.
type informer struct {
	gvk    schema.GroupVersionKind
	shared toolscache.SharedIndexInformer
	hooks  *hook.Cache

	mu    sync.Mutex // guards what follows
	phase hook.Phase // Waiting or Failing, or "" while all is well
	err   error
	since time.Time
}

func newInformer(b Backend, h *hook.Cache, gvk schema.GroupVersionKind, example Object) *informer {
	i := &informer{gvk: gvk, hooks: h, since: time.Now()}
	lw := &listerWatcher{backend: b, gvk: gvk, report: i.report}
	i.shared = toolscache.NewSharedIndexInformerWithOptions(lw.listWatch(), example, toolscache.SharedIndexInformerOptions{
		Indexers:          toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc},
		ObjectDescription: gvk.String(),
	})
	return i
}

// report takes down what the ListerWatcher meets: a phase with its error, or "" and nil when a request went well.
func (i *informer) report(phase hook.Phase, err error) {
	i.mu.Lock()
	changed := phase != i.phase || (err != nil && i.err != nil && err.Error() != i.err.Error())
	if changed {
		i.phase, i.err, i.since = phase, err, time.Now()
	}
	i.mu.Unlock()
	if changed && i.hooks != nil && i.hooks.InformerState != nil {
		i.hooks.InformerState(i.state())
	}
}

func (i *informer) state() hook.InformerState {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := hook.InformerState{Kind: i.gvk.Kind + "." + i.gvk.Version + "." + i.gvk.Group, Phase: i.phase, Err: i.err, Since: i.since}
	if i.gvk.Group == "" {
		s.Kind = i.gvk.Kind + "." + i.gvk.Version
	}
	if s.Phase != "" {
		return s
	}
	s.Phase = hook.Syncing
	if i.shared.HasSynced() {
		s.Phase = hook.Synced
	}
	return s
}

// synced is closed when the initial list is in the store.
func (i *informer) synced() <-chan struct{} { return i.shared.HasSyncedChecker().Done() }
