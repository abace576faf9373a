// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"

	"github.com/setpoint-dev/setpoint/internal/run"
)

const (
	modulePath  = "github.com/setpoint-dev/setpoint"
	versionWait = 3 * time.Second // as long as an informer waits for an answer before it is failing
)

// logStarted logs what runs, and where. It asks the API server for its version, and logs the other
// attributes if there is no answer.
func (m *Manager) logStarted(ctx context.Context) error {
	calls := run.Calls{Of: "the API server's version"}
	ask := discovery.ToServerVersionInterfaceWithContext(m.client.Discovery()).ServerVersionWithContext
	api, err := run.Call(ctx, &calls, versionWait, ask)
	if err != nil {
		api = &version.Info{GitVersion: "unknown"}
	}
	program, own := versions()
	args := []any{"name", m.o.Name, "version", program, "setpoint", own, "server", m.client.Config().Host, "serverVersion", api.GitVersion}
	if e, ok := m.main.leadership.(*elected); ok {
		args = append(args, "lease", e.String())
	}
	if err != nil {
		// client-go does not decode the message of this answer: see Result.Raw of package rest.
		args = append(args, "err", cmp.Or(string(apierrors.ReasonForError(err)), err.Error()))
	}
	m.report.logger().Info("started", args...)
	if errors.As(err, new(*run.OverdueError)) {
		<-ctx.Done() // a request that hangs is an error of the stop, not before
	}
	return run.Join(moment, &calls)
}

// versions returns the versions of the program and of this module.
func versions() (program, own string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", "unknown"
	}
	own = info.Main.Version // of the module's own examples
	for _, m := range info.Deps {
		if m.Path == modulePath {
			own = m.Version
			if m.Replace != nil {
				own = cmp.Or(m.Replace.Version, "(devel)") // a directory has none
			}
		}
	}
	return cmp.Or(info.Main.Version, "unknown"), cmp.Or(own, "unknown")
}

// logStopping logs the cause that Run returns, possibly half a minute later.
func (m *Manager) logStopping(ctx context.Context) {
	grace := m.o.Grace.String()
	if errs := m.report.errors(); len(errs) > 0 {
		m.report.logger().Error("stopping, because something has failed", "err", errs[0], "grace", grace)
		return
	}
	m.report.logger().Info("stopping", "cause", context.Cause(ctx), "grace", grace)
}

func (m *Manager) logStopped(ctx context.Context, began time.Time, err error) {
	ran := time.Since(began).Round(time.Millisecond).String()
	if err != nil {
		m.report.logger().Error("stopped", "err", err, "ran", ran)
		return
	}
	m.report.logger().Info("stopped", "cause", context.Cause(ctx), "ran", ran)
}
