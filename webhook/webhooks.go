// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/webhook/internal/certs"
)

// Webhooks are the webhooks of a process. New makes them. Add webhooks before the manager runs.
type Webhooks struct {
	o     Options
	added chan struct{} // has an element when a webhook was added too late
	certs *certs.Certs  // nil: the server has certificates of its own

	// To avoid a deadlock, a request takes bodies before objects, and each only once at a time.
	bodies, objects *budget
	sizes           sizes

	mu         sync.RWMutex         // guards what follows
	endpoints  map[string]*endpoint // by path
	admissions []*admission         // in the order of the calls
	hubs       map[schema.GroupKind]hub
	policies   []*unstructured.Unstructured
	wrong      []error
	missing    map[string]error // the registrations that were looked at; nil is in place
	running    bool
	hosted     bool // by a manager
	hook       *hook.Hook
}

// add calls register under the lock. Its error is a mistake of the call, such as Default.
func (w *Webhooks) add(call string, register func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := register()
	if w.running && err == nil {
		err = errors.New("the manager runs already, and the API server may not know the webhook; add webhooks before Run")
	}
	if err == nil {
		return
	}
	w.wrong = append(w.wrong, fmt.Errorf("webhook.%s: %w", call, err))
	select {
	case w.added <- struct{}{}:
	default:
	}
}

func (w *Webhooks) mountLocked(e *endpoint) error {
	if w.endpoints[e.path] != nil {
		return fmt.Errorf("two webhooks are named %q; set Registration.Name to a name of its own", e.name)
	}
	w.endpoints[e.path] = e
	return nil
}

func (w *Webhooks) endpoint(path string) *endpoint {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.endpoints[path]
}
