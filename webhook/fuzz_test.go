// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/setpoint-dev/setpoint/webhook"
)

// FuzzAdmission posts bodies to a defaulter and a validator. Each gets one answer without a panic.
func FuzzAdmission(f *testing.F) {
	w := newHooks()
	webhook.AddDefaulter(w, func(_ context.Context, o *Thing) error {
		o.Spec.Leaves = append(o.Spec.Leaves[:len(o.Spec.Leaves)/2:len(o.Spec.Leaves)/2], Leaf{Left: "new"})
		o.Spec.Size++
		return nil
	}, webhook.Registration{})
	webhook.AddValidator(w, webhook.Validator[*Thing]{
		Create: func(context.Context, *Thing) error { return nil }, Update: func(context.Context, *Thing, *Thing) error { return nil },
		Delete: func(context.Context, *Thing) error { return nil },
	}, webhook.Registration{})
	h := handlerOf(f, w)
	for _, body := range []string{"", "{}", "null", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}`} {
		f.Add([]byte(body))
	}
	f.Add(reviewOf(f, request(admissionv1.Create, `{"spec":{"size":1,"x":{"y":1e9},"leaves":[{"left":"a","z":[1]},{"right":"b"}],"a~/key":{"~/":{}}}}`, "")))
	f.Add(reviewOf(f, request(admissionv1.Update, sized(2), thing)))
	f.Add(reviewOf(f, request(admissionv1.Delete, "", thing)))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{defaultPath, validatePath} {
			switch got := post(h, path, body); got.Code {
			case http.StatusOK:
				var review admissionv1.AdmissionReview
				if err := json.Unmarshal(got.Body.Bytes(), &review); err != nil || review.Response == nil || review.Response.UID == "" {
					t.Errorf("%v: %s", err, got.Body)
				}
			case http.StatusBadRequest:
			default:
				t.Errorf("%d %s", got.Code, got.Body)
			}
		}
	})
}
