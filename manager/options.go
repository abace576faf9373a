// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
)

// Options configures New. Only Name is required.
type Options struct {
	// Name is the program's name: the default FieldOwner, the start of the user agent, and the
	// reportingController of events. It must not contain control characters, such as line breaks.
	Name string
	// Scheme maps kinds to Go types. Default: client-go's scheme, which has every built-in kind.
	Scheme *runtime.Scheme
	// FieldOwner is the field manager of the client's writes. Default: Name.
	FieldOwner string
	// Cache has the namespaces, labels, transform, storage and resync of all handles and informer
	// factories.
	// Its Hook is joined with the field Hook. Run returns an error if it is invalid, for
	// example with an empty set of namespaces. Default: everything.
	//
	//	Cache: cache.Options{Namespaces: cache.ParseNamespaces(os.Getenv("WATCH_NAMESPACE"))},
	Cache cache.Options
	// Hook gets the events of the manager and all that it runs: controllers with their queues and
	// sources, informers, requests, Leases and events. Metrics adds its own. Independently, the
	// manager logs informers that wait, fail or recover, restored API servers, and writes without
	// the context of their Reconcile. With LeaderElection it also logs writes without a term, once
	// for each resource, unless RequireTerm refuses them. Default: none.
	Hook *hook.Hook
	// RequireTerm refuses writes whose context has no term of leadership: see
	// client.Options.RequireTerm. It requires LeaderElection. Default: false.
	RequireTerm bool
	// LeaderElection decides which replica works. With *leaderelection.Options one leads at a time.
	// With *shard.Options all replicas work: each reconciles its part of the keys of the
	// controllers of Add, and AddLeaderOnly is an error; see AddLease. If slots are unserved for
	// more than a minute, one replica then records the event SlotsUnserved on the group's Lease,
	// and SlotsServed afterwards. Their Hook is joined with the field Hook and the
	// manager's log. Default: nil, every replica runs its controllers.
	LeaderElection Coordinator
	// Controllers selects the controllers that run, as kube-controller-manager's --controllers
	// does: "*" enables all, "name" one, "-name" disables one. A name that was not added before Run
	// is an error. Default: all.
	Controllers []string
	// ControllerDefaults has defaults for all controllers: see controller.Controller.Default. A
	// Limiter limits all controllers together. Grace, Logger, Hook and Partition must be zero: the
	// manager has its own. Default: as in package controller.
	ControllerDefaults controller.Options
	// StalledAfter is how long a controller may have ready keys without any Reconcile that begins
	// or returns, before its check in Livez fails. Set it longer than any Reconcile takes, or slow
	// Reconciles restart the process. Negative: never, without a check. Default: 30 minutes, or
	// twice the controller's Deadline if that is longer.
	StalledAfter time.Duration
	// Metrics counts the events that Hook gets: see metrics.New. server.AddMetrics serves the
	// counts. Default: nil.
	Metrics Metrics
	// Grace is how long running Reconciles, requests, and the functions added to the manager, may
	// continue after a stop begins. Default: 25 s, less than the 30 s that Kubernetes gives a
	// pod.
	Grace time.Duration
	// Logger is for the manager, and for controllers without their own. Default: the logger of
	// Run's context, else slog.Default().
	Logger *slog.Logger
}

// Metrics counts events and serves the counts. *metrics.Metrics implements it.
type Metrics interface {
	// Hook returns the Hook that counts, the same at each call.
	Hook() *hook.Hook
	// Handler returns a handler that serves the counts, or an error if it cannot.
	Handler() (http.Handler, error)
}

func validateDefaults(o controller.Options) error {
	var wrong []error
	if o.Grace != 0 || o.Logger != nil || o.Hook != nil {
		wrong = append(wrong, errors.New("manager.Options.ControllerDefaults: Grace, Logger and Hook must be zero; set the manager's own Grace, Logger and Hook"))
	}
	if o.Partition != nil {
		wrong = append(wrong, errors.New("manager.Options.ControllerDefaults: Partition must be nil; set the manager's LeaderElection, or the Partition of a controller"))
	}
	if err := o.Validate(); err != nil {
		wrong = append(wrong, fmt.Errorf("manager.Options.ControllerDefaults: %w", err))
	}
	return errors.Join(wrong...)
}

// Validate returns an error that names each wrong field, or nil.
func (o Options) Validate() error {
	var wrong []error
	if o.Name == "" {
		wrong = append(wrong, errors.New("manager.Options.Name: name the program"))
	}
	if strings.ContainsFunc(o.Name, unicode.IsControl) {
		wrong = append(wrong, fmt.Errorf("manager.Options.Name: %q has a line break or another control character; use printable text, which fits into a header", o.Name))
	}
	wrong = append(wrong, argument.NotNegative("manager.Options.Grace", o.Grace))
	if o.RequireTerm && o.LeaderElection == nil {
		wrong = append(wrong, errors.New("manager.Options.RequireTerm: without LeaderElection there are no terms, and every write would be refused"))
	}
	if o.Metrics != nil && argument.IsNil(o.Metrics) {
		wrong = append(wrong, errors.New("manager.Options.Metrics: it is a nil pointer; use the result of metrics.New"))
	}
	wrong = append(wrong, validateDefaults(o.ControllerDefaults), validateList(o.Controllers))
	if o.LeaderElection != nil {
		wrong = append(wrong, validateCoordinator("manager.Options.LeaderElection", o.LeaderElection))
	}
	return errors.Join(wrong...)
}

func (o Options) withDefaults() Options {
	o.FieldOwner, o.Grace = cmp.Or(o.FieldOwner, o.Name), cmp.Or(o.Grace, 25*time.Second)
	return o
}

const everyController = "*"

func enabled(list []string, name string) bool {
	switch {
	case len(list) == 0 || slices.Contains(list, name):
		return true
	case slices.Contains(list, "-"+name):
		return false
	default:
		return slices.Contains(list, everyController)
	}
}

func validateList(list []string) error {
	var wrong []error
	some := len(list) == 0
	for _, name := range list {
		bare := strings.TrimPrefix(name, "-")
		switch {
		case bare == "" || name == "-"+everyController:
			wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: %q is invalid; use a name, %q for all, or a name after a minus sign", name, everyController))
		case bare != name && slices.Contains(list, bare):
			wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: %q is both enabled and disabled; keep one", bare))
		}
		some = some || name == bare
	}
	if !some {
		wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: %q enables no controller; put %q before it to enable all others", strings.Join(list, ","), everyController))
	}
	return errors.Join(wrong...)
}

func validateNames(list, known []string) error {
	var wrong []error
	for _, name := range list {
		if bare := strings.TrimPrefix(name, "-"); bare != everyController && bare != "" && !slices.Contains(known, bare) {
			wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: no controller is named %q; there are %q", bare, known))
		}
	}
	return errors.Join(wrong...)
}
