// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"sync"

	theircontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	theirs "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
)

// hosted runs a controller of controller-runtime, with its queue and workers, as one of Setpoint's
// manager: level a.
type hosted struct {
	name   string
	bridge *Bridge
	theirs theircontroller.Controller
	synced chan struct{}

	mu      sync.Mutex
	stop    context.CancelFunc // ends the sources that Warm has started
	led     bool
	leading bool
	// onEnd calls a function when running Reconciles of the term must end; nil before the term.
	onEnd func(func(cause error)) (forget func() bool)
}

func (b *Bridge) host(c theircontroller.Controller) {
	h := &hosted{name: hostedName(c), bridge: b, theirs: c, synced: make(chan struct{}), stop: func() {}}
	for i := 2; b.claim(h.name) != nil; i++ { // with SkipNameValidation, names may repeat
		h.name = fmt.Sprintf("%s-%d", hostedName(c), i)
	}
	h.wrapReconciler()
	if l, ok := c.(theirs.LeaderElectionRunnable); ok && !l.NeedLeaderElection() {
		b.manager.AddControllerEverywhere(h)
		return
	}
	b.manager.Add(h)
}

// field returns an exported field of a controller of controller-runtime. Its type is internal.
func field(c theircontroller.Controller, name string) reflect.Value {
	v := reflect.Indirect(reflect.ValueOf(c))
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}

func hostedName(c theircontroller.Controller) string {
	if name := field(c, "Name"); name.Kind() == reflect.String {
		return name.String()
	}
	return "controller"
}

// wrapReconciler lets running Reconciles go on while a stop waits for them. In controller-runtime
// they have the context of the workers, which ends at once.
func (h *hosted) wrapReconciler() {
	do := field(h.theirs, "Do")
	if !do.CanSet() || do.Type() != reflect.TypeFor[reconcile.Reconciler]() {
		h.bridge.options.Logger.Info("a stop ends the context of running Reconciles at once: its controller is of another type than controller-runtime's", "controller", h.name)
		return
	}
	inner := do.Interface().(reconcile.Reconciler) //nolint:forcetypeassert // it was compared
	do.Set(reflect.ValueOf(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		h.mu.Lock()
		onEnd := h.onEnd
		h.mu.Unlock()
		if onEnd == nil {
			return inner.Reconcile(ctx, r)
		}
		longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		defer cancel(nil)
		defer onEnd(cancel)()
		if at, ok := ctx.Deadline(); ok { // of ReconciliationTimeout
			limited, free := context.WithDeadline(longer, at)
			defer free()
			longer = limited
		}
		return inner.Reconcile(longer, r)
	})))
}

// Name returns the controller's name.
func (h *hosted) Name() string { return h.name }

// Validate returns nil: the builder has checked the controller.
func (h *hosted) Validate() error { return nil }

// Default does nothing: the options are controller-runtime's.
func (h *hosted) Default(controller.Options) {}

// Warm starts the sources if the controller is willing to.
func (h *hosted) Warm(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	h.mu.Lock()
	h.stop = stop
	h.mu.Unlock()
	var err error
	if w, ok := h.theirs.(interface {
		Warmup(ctx context.Context) error
	}); ok {
		err = w.Warmup(h.bridge.based(ctx))
	}
	if err != nil && ctx.Err() == nil {
		return err
	}
	close(h.synced)
	<-ctx.Done()
	return nil
}

// Lead runs the workers until take ends. Running Reconciles may continue until work ends.
func (h *hosted) Lead(take, work context.Context) error {
	h.mu.Lock()
	if h.led {
		h.mu.Unlock()
		return errors.New("a controller of controller-runtime cannot start again in this process")
	}
	h.led, h.leading = true, true
	h.onEnd = func(f func(error)) func() bool {
		return context.AfterFunc(work, func() { f(context.Cause(work)) })
	}
	h.mu.Unlock()
	defer h.ended()
	select { // Start would wait for Warmup without looking at its context
	case <-h.synced:
	case <-take.Done():
		return lost(take)
	}
	h.mu.Lock()
	stop := h.stop // of Warm, which may start after Lead
	h.mu.Unlock()
	// It waits for its workers, and they for the queue, which ends with the context of Warm.
	defer context.AfterFunc(take, stop)()
	if err := h.theirs.Start(h.bridge.based(take)); err != nil {
		return err
	}
	return lost(take)
}

func (h *hosted) ended() {
	h.mu.Lock()
	h.leading = false
	h.mu.Unlock()
}

// Synced is closed when the sources have started.
func (h *hosted) Synced() <-chan struct{} { return h.synced }

// WaitIdle cannot look into the controller's queue.
func (h *hosted) WaitIdle(context.Context) (controller.Idle, error) {
	return controller.Idle{}, errors.New("its queue is controller-runtime's, so it is unknown when it is idle; move it to the builder of crbridge")
}

// AwaitWrites does nothing: the writes of the controller are not recorded.
func (h *hosted) AwaitWrites(context.Context) error { return nil }

// Report has only what is known from outside.
func (h *hosted) Report() controller.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := controller.Report{Name: h.name, Leading: h.leading}
	select {
	case <-h.synced:
	default:
		r.Unsynced = []string{"the sources of controller-runtime's controller"}
	}
	return r
}

// Failing returns nil: see WaitIdle.
func (h *hosted) Failing() []controller.FailedKey { return nil }

// Keys has none: see WaitIdle.
func (h *hosted) Keys() iter.Seq[controller.KeySummary] {
	return func(func(controller.KeySummary) bool) {}
}

// MarshalJSON has the name and where the controller runs.
func (h *hosted) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"name": h.name, "leading": h.Report().Leading, "queue": "controller-runtime's"})
}
