// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/webhook"
)

const mib = 1 << 20

// betaOf is a ConversionReview of one shop with a text.
func betaOf(size int) []byte {
	spec := `{"host":"` + strings.Repeat("x", size) + `"}`
	return []byte(conversionOf("shops.example.com/v1", shop("v1beta1", "a", spec)))
}

// largeThing is an AdmissionReview of one Thing with a text.
func largeThing(t *testing.T, size int) []byte {
	t.Helper()
	return reviewOf(t, request(admissionv1.Create, `{"metadata":{"name":"a"},"spec":{"name":"`+strings.Repeat("x", size)+`"}}`, ""))
}

// anonymous sends a part of a request to /convert, then nothing. It returns the answer when the
// server has closed the connection. With unread, it does not read until unread is closed.
func (o *operator) anonymous(t *testing.T, announced int, body []byte, unread <-chan struct{}) (answer string) {
	t.Helper()
	raw, err := o.dial(t.Context(), "", "")
	if err != nil {
		t.Error(err)
		return ""
	}
	defer raw.Close()
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // self-signed
	if _, err := fmt.Fprintf(c, "POST /convert HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", announced, body); err != nil {
		t.Error(err)
		return ""
	}
	if unread != nil {
		<-unread
	}
	text, _ := io.ReadAll(c)
	return string(text)
}

// TestA6_SlowClientsAreCutOffForOthers: a client may send slowly unless others wait. Small requests
// never wait.
func TestA6_SlowClientsAreCutOffForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, newAPI())
		webhook.AddConversion(o.hooks, fromBeta, toBeta)
		o.start(t)
		slow := make(chan string, 10)
		for range cap(slow) {
			go func() { slow <- o.anonymous(t, 7*mib, betaOf(mib)[:mib], nil) }()
		}
		time.Sleep(time.Millisecond)
		for size, most := range map[int]time.Duration{1 << 10: 0, 60 << 10: 0, 3 * mib: 4 * time.Second, 6 * mib: 4 * time.Second} {
			if got := o.post(t, "/convert", betaOf(size)); got.code != http.StatusOK || got.took > most {
				t.Errorf("%d bytes: status %d after %s: %.200s", size, got.code, got.took, got.text)
			}
		}
		patient := 0 // at the end, no other request waits for the last two
		for range cap(slow) {
			got := <-slow
			switch {
			case strings.HasSuffix(got, "webhook convert: the body cannot be read: read pipe: i/o timeout"):
				patient++
			case !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "\r\nRetry-After: 1\r\n") ||
				!strings.HasSuffix(got, "webhook convert: too many large requests are in flight; try again"):
				t.Errorf("a slow client got %s", got)
			}
		}
		testkit.Equal(t, patient, 2, "slow clients that had the whole time for a body")
		o.end(t)
	})
}

// TestA6_ClientsThatDoNotReadAreCutOffForOthers: an answer is in memory until its client has it.
func TestA6_ClientsThatDoNotReadAreCutOffForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, newAPI())
		webhook.AddConversion(o.hooks, fromBeta, toBeta)
		o.start(t)
		var slow sync.WaitGroup
		unread := make(chan struct{})
		for range 4 {
			slow.Go(func() {
				body := betaOf(6 * mib)
				o.anonymous(t, len(body), body, unread)
			})
		}
		time.Sleep(time.Millisecond)
		if got := o.post(t, "/convert", betaOf(5*mib)); got.code != http.StatusOK || got.took > 4*time.Second {
			t.Errorf("status %d after %s: %.200s", got.code, got.took, got.text)
		}
		close(unread)
		slow.Wait()
		o.end(t)
	})
}

// TestA6_AWaitEndsBeforeTheTimeout: functions that take long hold the whole budget. A large request
// has its answer before the API server's timeout, and small ones do not wait.
func TestA6_AWaitEndsBeforeTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, newAPI())
		o.validating(func(ctx context.Context, thing *Thing) error {
			if len(thing.Spec.Name) > mib {
				<-ctx.Done()
			}
			return nil
		})
		o.start(t)
		var long []<-chan answer
		rest := 16*mib - 3*len(largeThing(t, 0))
		for _, size := range []int{6 * mib, 6 * mib, rest - 12*mib} {
			long = append(long, o.background(t, validatePath+"?timeout=30s", largeThing(t, size)))
		}
		time.Sleep(time.Second)
		if got := o.post(t, validatePath, largeThing(t, 1<<10)); got.code != http.StatusOK || got.took > 0 {
			t.Errorf("a small request: status %d after %s: %s", got.code, got.took, got.text)
		}
		if got := o.post(t, validatePath+"?timeout=5s", largeThing(t, 2*mib)); got.code != http.StatusServiceUnavailable || got.took != 4500*time.Millisecond {
			t.Errorf("a large request: status %d after %s: %s", got.code, got.took, got.text)
		}
		for _, l := range long {
			got := <-l
			testkit.Equal(t, got.code, http.StatusOK, got)
		}
		if got := o.post(t, validatePath+"?timeout=5s", largeThing(t, 512<<10)); got.code != http.StatusOK || got.took > 0 {
			t.Errorf("after the long requests: status %d after %s: %s", got.code, got.took, got.text)
		}
		o.end(t)
	})
}

// TestA6_ObjectsThatNeedMuchMemoryAreRefused sends short JSON for which a decoder allocates much.
func TestA6_ObjectsThatNeedMuchMemoryAreRefused(t *testing.T) {
	w := newHooks()
	allow := func(context.Context, *Thing) error { return nil }
	webhook.AddValidator(w, webhook.Validator[*Thing]{Create: allow}, webhook.Registration{})
	webhook.AddDefaulter(w, allow, webhook.Registration{})
	h := handlerOf(t, w)
	review := reviewOf(t, request(admissionv1.Create, `{"spec":{"named":[`+strings.Repeat("{},", 600_000)+`{}]}}`, ""))
	for _, path := range []string{validatePath, defaultPath} {
		got := post(h, path, review)
		if want := "MiB of memory; the limit is 64 MiB, so limit its lists in the CustomResourceDefinition"; got.Code != http.StatusRequestEntityTooLarge || !strings.HasSuffix(got.Body.String(), want) {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	groups := reviewOf(t, request(admissionv1.Create, `{}`, ""))
	groups = []byte(strings.Replace(string(groups), `"userInfo":{`, `"userInfo":{"groups":[`+strings.Repeat(`"",`, 100_000)+`""]`, 1))
	if got := post(h, validatePath, groups); got.Code != http.StatusRequestEntityTooLarge || !strings.HasSuffix(got.Body.String(), "the user of the AdmissionReview has too many groups or extra fields") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	aisles := shop("v1beta1", "a", `{"aisles":[`+strings.Repeat(`"",`, 1_800_000)+`""]}`)
	a := conversionIn(t, postConversion(t.Context(), converting().Handler(nil), conversionOf("shops.example.com/v1", aisles)))
	testkit.HasPrefix(t, a.Response.Result.Message, `webhook: convert Shop "a" from shops.example.com/v1beta1 to shops.example.com/v1: the object needs about `)
	testkit.Equal(t, a.Response.Result.Status, "Failure")
}
