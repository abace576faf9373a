// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/why"
)

func TestOfError(t *testing.T) {
	denial := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: `admission webhook "x.example.com" denied the request: cannot be smaller`}}
	}
	forbidden := func(name, text string) error { return apierrors.NewForbidden(maps, name, errors.New(text)) }
	for name, c := range map[string]struct {
		err  error
		want why.Reason
	}{
		"none":                     {nil, ""},
		"another":                  {errFlaky, why.Error},
		"wrapped, joined":          {errors.Join(errFlaky, fmt.Errorf("web: %w", apierrors.NewConflict(maps, "web", errFlaky))), why.Conflict},
		"create of another":        {apierrors.NewAlreadyExists(maps, "web"), why.Conflict},
		"no right":                 {forbidden("web", `User "x" cannot patch resource "configmaps" in API group "" in the namespace "default"`), why.Forbidden},
		"no right to list":         {forbidden("", `User "x" cannot list resource`), why.Forbidden},
		"no token":                 {apierrors.NewUnauthorized("no"), why.Forbidden},
		"more rights than its own": {forbidden("web", `user "x" (groups=["y"]) is attempting to grant RBAC permissions not currently held`), why.Forbidden},
		"quota":                    {forbidden("web", "exceeded quota: q, requested: count/configmaps=1"), why.Denied},
		"Pod security":             {forbidden("web", "violates PodSecurity: host namespaces cannot be used"), why.Denied},
		"webhook, forbidden":       {denial(http.StatusForbidden, metav1.StatusReasonForbidden), why.Denied},
		"webhook, conflict":        {denial(http.StatusConflict, metav1.StatusReasonConflict), why.Denied},
		"webhook, throttled":       {denial(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests), why.Denied},
		"webhook is down":          {apierrors.NewInternalError(errors.New(`failed calling webhook "x.example.com": no route`)), why.Unavailable},
		"invalid":                  {apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "web", nil), why.Invalid},
		"bad request":              {apierrors.NewBadRequest("no"), why.Invalid},
		"throttled":                {apierrors.NewTooManyRequests("no", 1), why.Throttled},
		"throttled here":           {fmt.Errorf("client rate limiter Wait returned an error: %w", context.DeadlineExceeded), why.Throttled},
		"missing":                  {apierrors.NewNotFound(maps, "web"), why.Missing},
		"kind not served":          {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Website"}}, why.KindMissing},
		"server timeout":           {apierrors.NewTimeoutError("no", 1), why.TimedOut},
		"deadline":                 {fmt.Errorf("get: %w", context.DeadlineExceeded), why.TimedOut},
		"canceled":                 {context.Canceled, why.Error},
		"refused":                  {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, why.Unavailable},
		"namespace ends": {&apierrors.StatusError{ErrStatus: metav1.Status{
			Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Details: &metav1.StatusDetails{Name: "web", Causes: []metav1.StatusCause{{Type: "NamespaceTerminating"}}},
		}}, why.NamespaceTerminating},
	} {
		testkit.Equal(t, why.OfError(c.err), c.want, name, c.err)
	}
}
