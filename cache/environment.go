// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import "github.com/setpoint-dev/setpoint/hook"

// environment is what the informers of a cache have in common.
type environment struct {
	backend Backend // a noBackend if there is none
	hooks   hook.Cache
	strings sharedStrings

	changed   bell // the state of an informer
	relisted  bell // an informer has listed everything, perhaps before its store has it
	recovered bell // an informer follows the API server, perhaps again
}

func (e *environment) hasBackend() bool { return e.backend != Backend(noBackend{}) }
