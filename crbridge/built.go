// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	theircontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	theirsource "sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/setpoint-dev/setpoint/controller"
	ourqueue "github.com/setpoint-dev/setpoint/workqueue"
)

// built is a controller of level b, as controller-runtime knows it.
type built struct {
	bridge     *Bridge
	controller *controller.Controller[types.NamespacedName]
	reconciler reconcile.Reconciler
	options    theircontroller.Options
	limiter    workqueue.TypedRateLimiter[reconcile.Request]
	idKey      any // of ReconcileIDFromContext
	logKey     any // of log.FromContext

	declared sync.Map // set of kind that the controller declares
}

// builtKey is the key of a *built in the contexts of its Reconciles and handlers.
type builtKey struct{}

func newBuilt(b *Bridge, name string, kind schema.GroupVersionKind, r reconcile.Reconciler, o theircontroller.Options) (*built, error) {
	made := &built{bridge: b, reconciler: r, options: o, limiter: o.RateLimiter, idKey: reconcileIDKey(), logKey: logKey()}
	if o.NewQueue != nil {
		return nil, errors.New("controller.Options.NewQueue has no counterpart; remove it, the queue is Setpoint's")
	}
	if made.limiter == nil { // for Requeue and AddRateLimited; errors have the controller's backoff
		made.limiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, 1000*time.Second)
	}
	global := b.options.Controller
	own := controller.Options{
		Workers: o.MaxConcurrentReconciles, Classes: ourqueue.ThreeClasses(),
	}
	if own.Workers == 0 {
		own.Workers = global.GroupKindConcurrency[kind.GroupKind().String()]
	}
	if own.Workers == 0 {
		own.Workers = global.MaxConcurrentReconciles
	}
	if made.options.ReconciliationTimeout == 0 {
		made.options.ReconciliationTimeout = global.ReconciliationTimeout
	}
	if made.options.LogConstructor == nil {
		made.options.LogConstructor = logConstructor(b.options.Controller.Logger, o.Logger, name, kind)
	}
	say := func(set bool, option, instead string) {
		remark(b.options.Logger.WithValues("controller", name), set, option, instead)
	}
	say(off(o.RecoverPanic), "RecoverPanic", "a panic is an error")
	say(o.CacheSyncTimeout != 0, "CacheSyncTimeout", "the controller starts without a kind that does not sync")
	say(off(o.UsePriorityQueue), "UsePriorityQueue", "the queue has three classes")
	say(off(o.EnableWarmup), "EnableWarmup", "the sources run on every replica")
	say(o.SkipNameValidation != nil && *o.SkipNameValidation, "SkipNameValidation", "each name is unique in its manager")
	made.controller = controller.New(name, reconcilerOf{made}, own)
	return made, nil
}

func off(option *bool) bool { return option != nil && !*option }

// logConstructor has the values of controller-runtime's.
func logConstructor(base, own logr.Logger, name string, kind schema.GroupVersionKind) func(*reconcile.Request) logr.Logger {
	if own.GetSink() != nil {
		base = own
	}
	base = base.WithValues("controller", name)
	if kind.Kind != "" {
		base = base.WithValues("controllerGroup", kind.Group, "controllerKind", kind.Kind)
	}
	return func(r *reconcile.Request) logr.Logger {
		if r == nil {
			return base
		}
		l := base
		if kind.Kind != "" {
			l = l.WithValues(kind.Kind, klog.KRef(r.Namespace, r.Name))
		}
		return l.WithValues("namespace", r.Namespace, "name", r.Name)
	}
}

func (b *built) add() {
	need := b.options.NeedLeaderElection
	if need == nil {
		need = b.bridge.options.Controller.NeedLeaderElection
	}
	if need != nil && !*need {
		b.bridge.manager.AddControllerEverywhere(b.controller)
		return
	}
	b.bridge.manager.Add(b.controller)
}

// declare is called before each read of a Reconcile.
func (b *built) declare(k kind) error {
	if _, known := b.declared.Load(k); known {
		return nil
	}
	if b.bridge.strict {
		return fmt.Errorf("crbridge: the controller %q neither watches nor declares %s; add it to Reads of its builder", b.controller.Name(), k)
	}
	b.reads(k)
	return nil
}

func (b *built) reads(k kind) {
	if _, known := b.declared.LoadOrStore(k, nil); !known {
		b.controller.Reads(k.readable())
	}
}

// reconcilerOf is a controller.Reconciler.
type reconcilerOf struct{ *built }

// Reconcile calls the Reconciler with the context that it expects, and maps its result.
func (r reconcilerOf) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	b, request := r.built, reconcile.Request{NamespacedName: key}
	ctx = &reconcileContext{Context: b.bridge.based(ctx), by: b, request: request}
	// With the controller's Deadline, ctx.Err would be Canceled, not DeadlineExceeded.
	if timeout := b.options.ReconciliationTimeout; timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the Reconcile exceeded its ReconciliationTimeout of %v", timeout))
		defer cancel()
	}
	result, err := b.reconciler.Reconcile(ctx, request) //nolint:contextcheck // it is the same context with values
	return b.settle(request, result, err)
}

func (b *built) settle(r reconcile.Request, result reconcile.Result, err error) (own controller.Result, _ error) {
	if result.Priority != nil {
		own.Class = new(classOf(*result.Priority))
	}
	switch {
	case err == nil:
	case errors.Is(err, reconcile.TerminalError(nil)):
		b.limiter.Forget(r)
		return own, controller.Terminal(err)
	case b.options.RateLimiter != nil:
		return own, controller.RetryAfter(err, b.limiter.When(r))
	default:
		return own, err
	}
	switch {
	case result.RequeueAfter > 0:
		b.limiter.Forget(r)
		own.RequeueAfter = result.RequeueAfter
	case result.Requeue: //nolint:staticcheck // reconcilers that move may use it
		own.RequeueAfter = b.limiter.When(r)
	default:
		b.limiter.Forget(r)
	}
	return own, nil
}

// Reconcile calls the Reconciler, for tests.
func (b *built) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	return b.reconciler.Reconcile(ctx, r)
}

// Watch adds a source, also while the controller runs.
func (b *built) Watch(src theirsource.Source) error {
	b.controller.Watch(&rawSource{theirs: src, by: b})
	return nil
}

// Start returns an error: the manager runs the controller.
func (b *built) Start(context.Context) error {
	return fmt.Errorf("crbridge: the manager starts the controller %q; remove the call of Start", b.controller.Name())
}

// GetLogger returns the controller's logger.
func (b *built) GetLogger() logr.Logger { return b.options.LogConstructor(nil) }
