// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

// Options configures New. Only Name is required.
type Options struct {
	// Name is the program's name: the default field owner of its writes, part of its user agent.
	Name string
	// Scheme knows the Go types of the kinds to be used. Default: client-go's scheme, which has every built-in kind.
	Scheme *runtime.Scheme
	// FieldOwner is the field manager of the client's writes. Default: Name.
	FieldOwner string
	// ClientHooks are told of requests, those for Leases included; CacheHooks of informers. What the log has, it has in any case:
	// once for each resource that it is written without a term, if there are any; and informers that wait, fail or recover.
	// Default: nobody is told.
	ClientHooks *hook.Client
	CacheHooks  *hook.Cache
	// Strict has requests that may write refused if their context has no term of leadership: see client.Options.Strict. It needs
	// LeaderElection. Default: they are made.
	Strict bool
	// LeaderElection makes one replica at a time the leader. Default nil: every replica acts. Its Hooks are told in
	// addition to the log.
	LeaderElection *leaderelection.Options
	// Controllers says which of the controllers that are added run, as kube-controller-manager's --controllers does: "*" is all of
	// them, "name" the one of that name, "-name" all the same not that one. A name of none that was added before Run is a mistake.
	// Default: all.
	Controllers []string
	// Health is where /livez and /readyz are served, for the kubelet. Default nil: nowhere.
	Health *HealthOptions
	// Server is a TLS server for what Handle mounts. Default nil: there is none.
	Server *ServerOptions
	// Grace is for how long running Reconciles, and everything else that was started, may go on after a stop was asked for.
	// Default: 25 s, which is less than the 30 s that Kubernetes gives a pod.
	Grace time.Duration
	// Logger is where the manager writes, and what controllers without a logger of their own use. Default: that of the
	// context that Run is given, else slog.Default().
	Logger *slog.Logger
}

// Validate names each field that is wrong.
func (o Options) Validate() error {
	var wrong []error
	if o.Name == "" {
		wrong = append(wrong, errors.New("manager.Options.Name: name the program"))
	}
	if o.Grace < 0 {
		wrong = append(wrong, fmt.Errorf("manager.Options.Grace: %s, must not be negative", o.Grace))
	}
	if o.Strict && o.LeaderElection == nil {
		wrong = append(wrong, errors.New("manager.Options.Strict: without LeaderElection there are no terms, and every write would be refused"))
	}
	wrong = append(wrong, checkControllers(o.Controllers), checkServers(o.Health, o.Server))
	if o.LeaderElection != nil {
		wrong = append(wrong, o.LeaderElection.Validate())
	}
	return errors.Join(wrong...)
}

func (o Options) withDefaults() Options {
	if o.FieldOwner == "" {
		o.FieldOwner = o.Name
	}
	if o.Grace == 0 {
		o.Grace = 25 * time.Second
	}
	return o
}
