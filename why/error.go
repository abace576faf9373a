// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OfError returns the Reason of a failed request, from [TimedOut] to [Error] in this package. Of
// several errors in a tree, the first answer of an API server decides. It returns "" for nil.
func OfError(err error) Reason {
	if err == nil {
		return ""
	}
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		return ofStatus(answer.Status(), err)
	}
	if unavailable, ok := errors.AsType[net.Error](err); ok && !errors.Is(err, context.DeadlineExceeded) {
		if unavailable.Timeout() {
			return TimedOut
		}
		return Unavailable
	}
	switch {
	case meta.IsNoMatchError(err):
		return KindMissing
	case strings.Contains(err.Error(), "client rate limiter Wait"):
		return Throttled
	case errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	default:
		return Error
	}
}

func ofStatus(s metav1.Status, err error) Reason {
	if isDenial(&s) { // a webhook chooses its code
		return Denied
	}
	switch s.Reason {
	case metav1.StatusReasonConflict, metav1.StatusReasonAlreadyExists:
		return Conflict
	case metav1.StatusReasonTooManyRequests:
		return Throttled
	case metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout:
		return TimedOut
	}
	switch {
	case apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return NamespaceTerminating
	case strings.Contains(s.Message, "failed calling webhook"):
		return Unavailable
	case s.Reason == metav1.StatusReasonUnauthorized || s.Reason == metav1.StatusReasonForbidden:
		return ofRefusal(&s)
	case s.Reason == metav1.StatusReasonInvalid || s.Code == http.StatusBadRequest:
		return Invalid
	case s.Reason == metav1.StatusReasonNotFound && isNoKind(&s):
		return KindMissing
	case s.Reason == metav1.StatusReasonNotFound || s.Reason == metav1.StatusReasonGone:
		return Missing
	case s.Code >= http.StatusInternalServerError:
		return Unavailable
	default:
		return Error
	}
}

// isDenial recognizes an admission webhook or policy.
func isDenial(s *metav1.Status) bool {
	return strings.HasPrefix(s.Message, "admission webhook ") && strings.Contains(s.Message, "denied the request") ||
		strings.Contains(s.Message, "ValidatingAdmissionPolicy '")
}

// ofRefusal distinguishes a lack of rights from an admission plugin, such as a quota or Pod
// security. Both have the same code.
func ofRefusal(s *metav1.Status) Reason {
	switch {
	case s.Details == nil || s.Details.Name == "":
		return Forbidden
	case strings.Contains(s.Message, `" cannot `), strings.Contains(s.Message, "attempting to grant RBAC permissions"):
		return Forbidden
	default:
		return Denied
	}
}

// isNoKind recognizes the answer for a path that the API server does not serve.
func isNoKind(s *metav1.Status) bool {
	return s.Details == nil || s.Details.Name == "" && len(s.Details.Causes) > 0 && s.Details.Causes[0].Type == metav1.CauseTypeUnexpectedServerResponse
}
