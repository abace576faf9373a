// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// troubleError is an error of the API server in words that say what to do.
type troubleError struct {
	says string
	err  error
}

// Error says what to do.
func (e *troubleError) Error() string { return e.says }

// Unwrap returns what the API server has said.
func (e *troubleError) Unwrap() error { return e.err }

// explained puts an answer to a request into words, if something outside of this process has to be done about it.
func (e *Elector) explained(verb string, err error) error {
	says := ""
	switch o := &e.o; {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		says = fmt.Sprintf("the namespace %s of the Lease %s is being deleted; create it again when it is gone, or name another", o.Namespace, o.Lease)
	case apierrors.IsNotFound(err) && verb == "create":
		says = fmt.Sprintf("the namespace %s of the Lease %s does not exist; create it", o.Namespace, o.Lease)
	case apierrors.IsForbidden(err):
		m := refusal.FindStringSubmatch(err.Error())
		if m == nil {
			return err // a quota or an admission plugin, which says itself what it wants
		}
		says = fmt.Sprintf("the user %s may not %s leases (coordination.k8s.io) in the namespace %s, here %s; grant it, by a Role and a "+
			"RoleBinding there, to create leases, and to get, update and watch the one with the resourceName %s", m[1], verb, o.Namespace, o.Lease, o.Lease)
	default:
		return err
	}
	return &troubleError{says, err}
}

// refusal is how the API server says that somebody has no permission, and who.
var refusal = regexp.MustCompile(`User ("[^"]*") cannot \w+ resource`)
