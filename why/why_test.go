// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/why"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixed struct {
	answers []why.Answer
	watches []string
}

func (f fixed) Explain(context.Context, why.Object) []why.Answer { return f.answers }

func (f fixed) Watches() []string { return f.watches }

// TestFor_PutsTroubleFirst: one controller has nothing to do with an object that another one fails
// to reconcile.
func TestFor_PutsTroubleFirst(t *testing.T) {
	of := func(controller string, r why.Reason) why.Explainer {
		return fixed{answers: []why.Answer{{Reason: r, Controller: controller}}}
	}
	got := why.For(t.Context(), why.Object{Kind: "Pod", Name: "p"}, of("a", why.Unmapped), of("b", why.Done), of("c", why.Running), of("d", why.Forbidden), of("e", why.Dropped))
	order := ""
	for _, a := range got.Answers {
		order += a.Controller
	}
	testkit.Equal(t, order, "dcbae")
}

// TestFor_NotWatched names the kinds that are watched, each once.
func TestFor_NotWatched(t *testing.T) {
	got := why.For(t.Context(), why.Object{Kind: "Pods"}, fixed{watches: []string{"Website.v1.example.com", "ConfigMap.v1"}}, fixed{watches: []string{"ConfigMap.v1"}})
	if len(got.Answers) != 1 || got.Answers[0].Reason != why.NotWatched {
		t.Fatalf("got %v", got)
	}
	if text := got.String(); !strings.Contains(text, `"Pods"`) || !strings.Contains(text, "watched kinds: ConfigMap.v1, Website.v1.example.com\n") {
		t.Errorf("got %s", text)
	}
}

func TestObject_Is(t *testing.T) {
	site := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Website"}
	for kind, want := range map[string]bool{
		"Website": true, "website": true, "websites": true, "websites.example.com": true, "WEBSITE.v1.example.com": true,
		"websites.v1.example.com": true, "Website.v2.example.com": false, "websites.example.org": false, "Websit": false, "": false, "Website.": false,
	} {
		testkit.Equal(t, (why.Object{Kind: kind}).Is(site), want, kind)
	}
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	for kind, want := range map[string]bool{"pods": true, "Pod.v1": true, "pod.v1.": false, "po": false} {
		testkit.Equal(t, (why.Object{Kind: kind}).Is(pod), want, kind)
	}
}

// TestAnswer_String: an error text cannot add a line.
func TestAnswer_String(t *testing.T) {
	a := why.Answer{
		Reason: why.Forbidden, Controller: "website", Key: "default/web", Cause: "it failed: \x1b[2Jno\nreason: Done",
		Remedy: "give\nrights", Since: time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC), Evidence: []string{"a\nb"},
	}
	testkit.Equal(t, a.String(), "website default/web: it failed:  [2Jno reason: Done\n  remedy: give rights\n  reason: Forbidden, since 2026-11-29T08:00:00Z\n  a b\n")
}

// TestReason_Trouble: a code that this version does not know is trouble, too.
func TestReason_Trouble(t *testing.T) {
	for reason, want := range map[why.Reason]bool{
		why.Forbidden: true, why.NotWatched: true, why.Paused: true, "New": true,
		why.Done: false, why.Queued: false, why.Dropped: false,
	} {
		testkit.Equal(t, reason.Trouble(), want, reason)
	}
}
