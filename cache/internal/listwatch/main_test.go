// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/storage"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// follower is a client-go informer over a ListerWatcher, with its reports.
type follower struct {
	lw    *listwatch.ListerWatcher
	store toolscache.SharedIndexInformer
	lags  atomic.Bool // of the store

	mu     sync.Mutex // guards these fields
	phase  hook.Phase
	why    error
	listed int
	mapped *meta.RESTMapping
}

// follow lists and watches the ConfigMaps of an API server until stop is called.
func follow(t *testing.T, api *sim.Server) (f *follower, stop func()) {
	t.Helper()
	codec := decodedMaps()
	return followAs(t, api, &codec)
}

func decodedMaps() storage.Decoded {
	return storage.Decoded{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), New: func() object.Object { return &corev1.ConfigMap{} }}
}

// followAs is follow with a codec.
func followAs(t *testing.T, api *sim.Server, codec storage.Codec) (f *follower, stop func()) {
	t.Helper()
	c, err := client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	f = &follower{}
	f.lw = listwatch.New(
		listwatch.Target{Backend: c, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Codec: codec},
		f)
	f.store = toolscache.NewSharedIndexInformer(f.lw.ListWatch(), codec.Example(), 0, toolscache.Indexers{})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.store.RunWithContext(ctx) })
	return f, sync.OnceFunc(func() {
		cancel()
		running.Wait()
		f.lw.Join()
	})
}

func (*follower) Prepare(o object.Object) object.Object { return o }

func (*follower) Delivered() {}

func (*follower) Compared() {}

func (*follower) Restored(*listwatch.Restored) bool { return true }

func (f *follower) Store() toolscache.Store { return lagging{f.store.GetStore(), &f.lags} }

func (f *follower) Report(phase hook.Phase, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.phase, f.why = phase, why
}

func (f *follower) Mapped(m *meta.RESTMapping) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mapped = m
	return true
}

func (f *follower) Listed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed++
}

func (f *follower) reported() (phase hook.Phase, why string, listed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.why != nil {
		why = f.why.Error()
	}
	return f.phase, why, f.listed
}

func (f *follower) has(name string) bool {
	_, found, err := f.store.GetStore().GetByKey("default/" + name)
	return found && err == nil
}

type answer = func(*sim.Request) (*http.Response, error)

func hang(r *sim.Request) (*http.Response, error) { return r.Hang() }

// onMaps answers requests for ConfigMaps.
func onMaps(a answer) answer {
	return func(r *sim.Request) (*http.Response, error) {
		if r.Resource.Resource != sim.ConfigMaps.Name {
			return nil, nil
		}
		return a(r)
	}
}

// onWatch answers watches.
func onWatch(a answer) answer {
	return func(r *sim.Request) (*http.Response, error) {
		if r.Verb != "watch" {
			return nil, nil
		}
		return a(r)
	}
}

// noStreaming refuses to stream initial lists.
func noStreaming(a answer) answer {
	return func(r *sim.Request) (*http.Response, error) {
		if r.Streaming() {
			return r.Fail(http.StatusUnprocessableEntity, "sendInitialEvents is forbidden")
		}
		return a(r)
	}
}
