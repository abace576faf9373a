// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"net/http"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/manager"
)

// Controllers is what Handler has under /debug/controllers.
func Controllers(all ...manager.Controller) http.Handler {
	return controllers(func() []manager.Controller { return all })
}

// Informers is what Handler has under /debug/informers.
func Informers(states ...hook.InformerState) http.Handler {
	return informers(func() []hook.InformerState { return states })
}

// Shards is what Handler has under /debug/shards.
func Shards(group manager.Group) http.Handler { return shards(group) }

// Profiles is what Handler has under /debug/pprof.
func Profiles() http.Handler { return profiles() }

// Keys is what Handler has under /debug/keys.
func Keys(all ...manager.Controller) http.Handler {
	return keys(func() []manager.Controller { return all })
}

// Stream is what Handler has under /debug/stream.
func Stream(summary func() []byte) http.Handler { return newStream(summary) }
