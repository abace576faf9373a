// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/server"
)

// Options configures New. Only Name is required.
type Options struct {
	// Name is the program's name: the default field owner of its writes, part of its user agent. It
	// has no line breaks or other control characters.
	Name string
	// Scheme knows the Go types of the kinds to be used. Default: client-go's scheme, which has every
	// built-in kind.
	Scheme *runtime.Scheme
	// FieldOwner is the field manager of the client's writes. Default: Name.
	FieldOwner string
	// ClientHooks observe requests, including those for Leases; CacheHooks observe informers. The
	// manager logs in any case informers that wait, fail or recover, and once for each resource
	// writes without a term, if there are terms. Default: none.
	ClientHooks *hook.Client
	CacheHooks  *hook.Cache
	// Strict refuses writes whose context has no term of leadership: see client.Options.Strict. It
	// needs LeaderElection. Default: they are made.
	Strict bool
	// LeaderElection makes one replica at a time the leader. Its Hooks are called in addition to the
	// log. Default nil: every replica acts.
	LeaderElection *leaderelection.Options
	// Controllers selects the controllers that run, as kube-controller-manager's --controllers does:
	// "*" enables all controllers, "name" one, "-name" disables one. A name that was not added before
	// Run is an error. Default: all.
	Controllers []string
	// Health is where /livez and /readyz are served, for the kubelet. Default nil: nowhere.
	Health *HealthOptions
	// Server is a TLS server for what Handle mounts: metrics, webhooks, a dashboard. Its Client is
	// the manager's. Default nil: there is none.
	Server *server.Options
	// Grace is how long running Reconciles, and all other functions, may continue after a stop was
	// asked for. Default: 25 s, which is less than the 30 s that Kubernetes gives a pod.
	Grace time.Duration
	// Logger is the manager's, and that of controllers without one of their own. Default: that of the
	// context of Run, else slog.Default().
	Logger *slog.Logger
}

// HealthOptions configures a plain HTTP server for the kubelet's probes, which server.Health
// describes.
//
// The checks of /livez:
//
//	ping                  never fails
//	leader-election-NAME  of each Lease: fails when work continues under a term that is lost; see
//	                      leaderelection.Elector.Check
//	controller-NAME       of each controller: see StalledAfter
//
// The checks of /readyz:
//
//	controller-NAME       of each controller: fails until it could lead, or the manager is Ready; not
//	                      after that. A standby is ready.
//	leader-election-NAME  of each Lease: fails until it could be read or written once, because a
//	                      replica without the right to it cannot take over; not after that. With
//	                      ?verbose it describes the trouble
//	informers             never fails; with ?verbose it lists the informers in trouble
//	certificate           of Options.Server: fails when the certificate in use has expired; with
//	                      ?verbose it reports that a newer one is broken
//	shutdown              fails after a stop was asked for, so that load balancers turn away while
//	                      requests are still answered
//
// and those of [Manager.AddLivezCheck] and [Manager.AddReadyzCheck].
type HealthOptions struct {
	// Address is where to listen: host:port, :port for all interfaces, port 0 for a free port.
	// Default: :8081.
	Address string
	// Listener replaces Address, for tests or for a socket that is already open. Run closes it.
	// Default: none.
	Listener net.Listener
	// StalledAfter is how long a controller may have ready keys while no Reconcile begins or returns
	// before /livez fails: see controller.Controller.Alive. It must be longer than any Reconcile
	// takes, or slow work makes the process restart again and again. Default: 0, never.
	StalledAfter time.Duration
}

// server returns the options of the server.
func (o *HealthOptions) server() server.Options {
	address := o.Address
	if address == "" && o.Listener == nil {
		address = ":8081"
	}
	return server.Options{Name: "health server", Plain: true, Address: address, Listener: o.Listener}
}

func validateServers(h *HealthOptions, s *server.Options) error {
	var wrong []error
	if h != nil {
		if err := h.server().Validate(); err != nil {
			wrong = append(wrong, fmt.Errorf("manager.Options.Health: %w", err))
		}
		if h.StalledAfter < 0 {
			wrong = append(wrong, fmt.Errorf("manager.Options.Health.StalledAfter: %s, must not be negative", h.StalledAfter))
		}
	}
	if s != nil {
		wrong = append(wrong, s.Validate())
	}
	if h != nil && s != nil {
		if _, port, _ := net.SplitHostPort(h.Address); h.Address == s.Address && port != "" && port != "0" {
			wrong = append(wrong, fmt.Errorf("manager.Options.Health and .Server have the same Address, %s; give each one of its own", h.Address))
		}
	}
	return errors.Join(wrong...)
}

// Validate names each field that is wrong.
func (o Options) Validate() error {
	var wrong []error
	if o.Name == "" {
		wrong = append(wrong, errors.New("manager.Options.Name: name the program"))
	}
	if strings.ContainsFunc(o.Name, unicode.IsControl) {
		wrong = append(wrong, fmt.Errorf("manager.Options.Name: %q has a line break or another control character; use printable text, which fits into a header", o.Name))
	}
	if o.Grace < 0 {
		wrong = append(wrong, fmt.Errorf("manager.Options.Grace: %s, must not be negative", o.Grace))
	}
	if o.Strict && o.LeaderElection == nil {
		wrong = append(wrong, errors.New("manager.Options.Strict: without LeaderElection there are no terms, and every write would be refused"))
	}
	wrong = append(wrong, validateList(o.Controllers), validateServers(o.Health, o.Server))
	if o.LeaderElection != nil {
		wrong = append(wrong, o.LeaderElection.Validate())
	}
	return errors.Join(wrong...)
}

func (o Options) withDefaults() Options {
	o.FieldOwner, o.Grace = cmp.Or(o.FieldOwner, o.Name), cmp.Or(o.Grace, 25*time.Second)
	return o
}

// everyController in Options.Controllers enables all controllers.
const everyController = "*"

// enabled reports whether a list such as kube-controller-manager's --controllers enables a name.
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

// validateList returns what is wrong with the form of such a list.
func validateList(list []string) error {
	var wrong []error
	some := len(list) == 0
	for _, name := range list {
		bare := strings.TrimPrefix(name, "-")
		switch {
		case bare == "" || name == "-"+everyController:
			wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: %q is no name, %q (all) or a name after a minus sign", name, everyController))
		case bare != name && slices.Contains(list, bare):
			wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: %q is both enabled and disabled; say one", bare))
		}
		some = some || name == bare
	}
	if !some {
		wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: %q leaves none to run; put %q before it to have all others run", strings.Join(list, ","), everyController))
	}
	return errors.Join(wrong...)
}

// validateNames names what such a list has besides the known names.
func validateNames(list, known []string) error {
	var wrong []error
	for _, name := range list {
		if bare := strings.TrimPrefix(name, "-"); bare != everyController && bare != "" && !slices.Contains(known, bare) {
			wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: no controller is named %q; there are %q", bare, known))
		}
	}
	return errors.Join(wrong...)
}
