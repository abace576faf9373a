// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/listwatch"
)

// informer is a client-go informer with a state that can be asked for.
type informer struct {
	key     key
	cache   *Cache
	shared  toolscache.SharedIndexInformer
	lw      *listwatch.ListerWatcher // nil of one that was not made here
	foreign bool                     // the host program's: it is never started or stopped here
	copy    consistency.Copy         // its Mapping is set before it is synced
	stopped chan struct{}            // closed by run
	listed  atomic.Bool              // see hasSynced

	untransformed listwatch.Broken // objects for which the transform failed

	refs   int                // guarded by the cache's mutex
	cancel context.CancelFunc // guarded by the cache's mutex; nil before it runs

	mu    sync.Mutex // guards what follows
	phase hook.Phase
	err   error
	since time.Time
}

func newInformer(c *Cache, k key, s Scope, example Object) *informer {
	if k.foreign != nil {
		return newForeign(c, k)
	}
	i := &informer{key: k, cache: c, stopped: make(chan struct{}), phase: hook.NotStarted, since: time.Now()}
	i.copy = consistency.Copy{
		Informer: i, Name: k.kind(), Kind: k.gvk, Place: k.place, Labels: s.Labels, Fields: s.Fields,
		Guess: *consistency.UsualPlural(k.gvk), Asked: true,
	}
	i.lw = listwatch.New(k.target(c.backend), listwatch.Reports{
		State: i.report, Mapping: i.copy.Mapping.Store, Listed: c.tellRelisted, Delivered: i.delivered, Store: i.store,
	})
	i.shared = ownResync{toolscache.NewSharedIndexInformerWithOptions(i.lw.ListWatch(), example, toolscache.SharedIndexInformerOptions{
		ResyncPeriod:      resyncCheck,
		Indexers:          builtInIndexers(),
		ObjectDescription: k.gvk.String(),
	})}
	if report := c.hooks.BrokenObject; report != nil {
		tell := func(object string, err error) { report(k.kind(), object, err) }
		i.lw.Broken.Report, i.untransformed.Report = tell, tell
	}
	// These cannot fail: it has not started.
	_ = i.shared.SetWatchErrorHandlerWithContext(logUnlessStopped)
	_ = i.shared.SetTransform(i.transform)
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
	if i.foreign {
		i.attend(ctx)
		return
	}
	i.set(hook.Syncing, nil)
	var noticing sync.WaitGroup
	noticing.Go(func() { i.noticeSync(ctx) })
	i.shared.RunWithContext(ctx)
	<-ctx.Done() // it returns at once if somebody else has run it
	noticing.Wait()
	if i.lw != nil {
		i.lw.Join()
	}
	i.set(hook.Stopped, nil)
	i.copy.End(false) // client-go has joined its callbacks
	close(i.stopped)
	i.cache.tellChanged()
}

// tooLate makes an informer one that has stopped: the cache has.
func (i *informer) tooLate() {
	i.phase = hook.Stopped // nobody else has it yet
	close(i.stopped)
}

// noticeSync takes down when the informer was synced.
func (i *informer) noticeSync(ctx context.Context) {
	select {
	case <-i.synced():
	case <-ctx.Done():
		return
	}
	if i.setSynced() {
		i.cache.tellChanged()
		i.copy.Look()
		i.cache.tellRecovered()
	}
}

func (i *informer) setSynced() (news bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.phase != hook.Syncing {
		return false
	}
	i.phase, i.since = hook.Synced, time.Now()
	return true
}

// report takes down what the ListerWatcher meets: Waiting or Failing with the error, or Syncing when a request went well.
func (i *informer) report(phase hook.Phase, err error) {
	if phase == hook.Syncing && i.HasSynced() {
		phase = hook.Synced
	}
	if news := i.set(phase, err); news && i.cache.hooks.InformerState != nil {
		i.cache.hooks.InformerState(i.state())
	}
}

// set says whether that was news of trouble, or of its end.
func (i *informer) set(phase hook.Phase, err error) (news bool) {
	news, changed := i.change(phase, err)
	if changed {
		i.cache.tellChanged()
		i.copy.Look()
		if phase == hook.Synced {
			i.cache.tellRecovered()
		}
	}
	return news
}

func (i *informer) change(phase hook.Phase, err error) (news, changed bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if phase == i.phase && (err == nil || sameReason(err, i.err)) {
		return false, false
	}
	news = err != nil || i.err != nil
	i.phase, i.err, i.since = phase, err, time.Now()
	return news, true
}

// sameReason compares errors without their digits: those are ports, streams and times.
func sameReason(a, b error) bool {
	words := func(err error) string {
		return strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return -1
			}
			return r
		}, err.Error())
	}
	return a != nil && b != nil && words(a) == words(b)
}

// at returns the phase, since when, and why.
func (i *informer) at() (phase hook.Phase, since time.Time, why error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	phase = i.phase
	switch {
	case i.foreign && i.shared.IsStopped():
		phase = hook.Stopped
	case i.foreign && !i.HasSynced():
		phase = hook.Syncing
	case phase == hook.Syncing && i.HasSynced():
		phase = hook.Synced // noticeSync is about to say so
	}
	return phase, i.since, i.err
}

// state is all but the size.
func (i *informer) state() hook.InformerState {
	s := hook.InformerState{Kind: i.key.kind(), Scope: i.key.String()}
	s.Phase, s.Since, s.Err = i.at()
	s.ResourceVersion = i.shared.GetStore().LastStoreSyncResourceVersion()
	if i.lw == nil {
		s.Scope += unknown
		return s
	}
	counts := i.lw.Counts()
	s.Lists, s.Watches, s.Quiet = counts.Lists, counts.Watches, counts.Quiet
	few, all := i.lw.Broken.Some()
	more, others := i.untransformed.Some()
	s.Broken, s.BrokenCount = append(few, more...), all+others
	return s
}

// size counts the objects, and estimates from a sample of them how long they are as JSON.
func (i *informer) size() (objects int, bytes int64) {
	const sample = 50
	keys := i.shared.GetStore().ListKeys()
	var seen, length int64
	for _, k := range keys[:min(len(keys), sample)] {
		obj, found, err := i.shared.GetStore().GetByKey(k)
		if err != nil || !found {
			continue
		}
		if text, err := json.Marshal(obj); err == nil {
			seen, length = seen+1, length+int64(len(text))
		}
	}
	if seen == 0 {
		return len(keys), 0
	}
	return len(keys), length * int64(len(keys)) / seen
}

// Shared implements consistency.Informer.
func (i *informer) Shared() toolscache.SharedIndexInformer { return i.shared }

// Phase implements consistency.Informer.
func (i *informer) Phase() hook.Phase {
	phase, _, _ := i.at()
	return phase
}

// Standing implements consistency.Informer.
func (i *informer) Standing() string { return i.state().String() }

// String names the kind, and the scope if it is not everything.
func (i *informer) String() string {
	if words := i.key.String(); words != "" {
		return i.key.kind() + " (" + words + ")"
	}
	return i.key.kind()
}

// delivered forgets objects that are gone.
func (i *informer) delivered() { i.untransformed.Prune(i.store()) }

func (i *informer) store() toolscache.Store { return i.shared.GetStore() }

// undecodable returns why an object cannot be decoded, or nil.
func (i *informer) Undecodable(name types.NamespacedName) error {
	if i.lw == nil {
		return nil
	}
	return i.lw.Broken.Of(name)
}

// synced is closed when the initial list is in the store.
func (i *informer) synced() <-chan struct{} { return i.shared.HasSyncedChecker().Done() }

// hasSynced asks on each read, so it does not make a channel checker as synced does.
func (i *informer) HasSynced() bool {
	if i.listed.Load() { // an informer stays synced
		return true
	}
	synced := i.shared.HasSynced()
	if synced {
		i.listed.Store(true)
	}
	return synced
}

// settled says whether there is nothing to wait for: it is synced, or says why it is not.
func (i *informer) settled() bool {
	phase, _, _ := i.at()
	return i.HasSynced() || phase == hook.Waiting || phase == hook.Failing
}
