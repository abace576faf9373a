// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// unknown is a kind that no scheme knows.
type unknown struct{ corev1.ConfigMap }

// TestEvent_InvalidArguments: each gets one line, counts as dropped and sends nothing.
func TestEvent_InvalidArguments(t *testing.T) {
	long := strings.Repeat("x", 129)
	for says, c := range map[string]struct {
		obj            object.Object
		kind           events.Type
		reason, action string
	}{
		"the object is nil":      {(*corev1.ConfigMap)(nil), events.Normal, "Created", "Create"},
		"the object has no name": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, events.Normal, "Created", "Create"},
		"the kind of a *events_test.unknown is unknown; add it to the scheme": {&unknown{*configMap("a")}, events.Normal, "Created", "Create"},
		`the type is \"Error\"; use events.Normal or events.Warning`:          {configMap("a"), "Error", "Created", "Create"},
		`the reason is \"\"; use a short word`:                                {configMap("a"), events.Normal, "", "Create"},
		`the reason is \"` + long:                                             {configMap("a"), events.Normal, long, "Create"},
		`the reason is \"a\\xff\"`:                                            {configMap("a"), events.Normal, "a\xff", "Create"},
		`the action is \"` + long:                                             {configMap("a"), events.Normal, "Created", long},
	} {
		t.Run(says, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				for range 3 {
					d.Eventf(d.ctx, c.obj, c.kind, c.reason, c.action, "note")
				}
				d.close()
				d.wantLog(1, `level=WARN msg="an event is dropped"`)
				d.wantLog(1, says)
				d.wantDropped("invalid", 3)
				testkit.Equal(t, d.requests(), 0)
			})
		})
	}
}

// TestSend_Refusals: what the API server refuses for good is dropped after one try, and logged
// once.
func TestSend_Refusals(t *testing.T) {
	terminating := metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Details: &metav1.StatusDetails{
		Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}},
	}}
	gone := metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{Name: "default", Kind: "namespaces"}}
	invalid := metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid}
	for why, c := range map[string]struct {
		status metav1.Status
		log    string
	}{
		"forbidden":                                  {metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}, "rule apiGroups [events.k8s.io], resources [events], verbs [create, patch]"},
		"the namespace is gone or terminating":       {terminating, ""},
		"the namespace is gone or terminating (404)": {gone, ""},
		"rejected by the API server":                 {invalid, "object=default/a"},
	} {
		t.Run(why, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d.api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.FailWith(c.status) })
				stop := d.run()
				for range 2 {
					d.fail(configMap("a"), "broken")
					testkit.Pass(time.Hour)
				}
				stop()
				d.close()
				d.wantDropped(strings.TrimSuffix(why, " (404)"), 2)
				testkit.Equal(t, d.requests(), 2)
				testkit.Equal(t, d.failed, 2)
				if c.log == "" {
					d.wantLog(0, "level=WARN")
				} else {
					d.wantLog(1, "level=WARN")
					d.wantLog(1, c.log)
				}
			})
		})
	}
}

// TestSend_TriesAreLimited: an event is tried 8 times in about two minutes. The next event is
// tried as often.
func TestSend_TriesAreLimited(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		stop := d.run()
		d.fail(configMap("a"), "broken")
		testkit.Pass(2 * time.Minute)
		testkit.Equal(t, d.requests(), 7)
		testkit.Pass(10 * time.Second)
		testkit.Equal(t, d.requests(), 8)
		d.wantDropped("too many failures", 1)
		d.wantLog(1, "too many failures")
		d.api.Intercept(nil)
		d.fail(configMap("a"), "broken")
		stop()
		d.close()
		testkit.Equal(t, d.shown(), 1, "the Events count calls")
	})
}

// TestSend_RetryAfter: the API server chooses a longer pause.
func TestSend_RetryAfter(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.api.Intercept(func(r *sim.Request) (*http.Response, error) {
			return r.FailWith(metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: 30}})
		})
		stop := d.run()
		defer stop()
		d.fail(configMap("a"), "broken")
		testkit.Pass(29 * time.Second)
		testkit.Equal(t, d.requests(), 1)
		d.api.Intercept(nil)
		testkit.Pass(time.Second)
		testkit.Equal(t, d.shown(), 1, "the Events count calls")
	})
}

// TestNote_IsCut: at 1,024 bytes, between two runes.
func TestNote_IsCut(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 1025), strings.Repeat("ä", 600), strings.Repeat("€", 400), strings.Repeat("x\xff", 800), "x" + strings.Repeat("\U0001F680", 300)} {
		bubble(t, func(t *testing.T, d *desk) {
			d.Eventf(d.ctx, configMap("a"), events.Normal, "Created", "Create", text)
			d.close()
			got := d.list()[0].Note
			if len(got) > 1024 || len(got) < 1020 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
				t.Errorf("%d bytes: %q", len(got), got)
			}
			testkit.HasPrefix(t, strings.ToValidUTF8(text, "\uFFFD"), strings.TrimSuffix(got, "…"), "it is another text")
		})
	}
	bubble(t, func(t *testing.T, d *desk) {
		d.Eventf(d.ctx, configMap("a"), events.Normal, "Created", "Create", strings.Repeat("x", 1024))
		d.close()
		testkit.Equal(t, d.list()[0].Note, strings.Repeat("x", 1024), "a note that fits is cut")
	})
}

// TestName_IsAQualifiedName, whatever the program is called.
func TestName_IsAQualifiedName(t *testing.T) {
	for name, want := range map[string]string{
		"website-operator": "website-operator", "example.com/website": "example.com/website", "Website operator": "Website-operator",
		"-x-": "x", "a/b/c": "a-b-c", "": "setpoint", "ü": "setpoint",
		strings.Repeat("x", 62) + "- y": strings.Repeat("x", 62),
	} {
		bubble(t, func(t *testing.T, d *desk) {
			r := events.New(d.client, events.Options{Name: name, Instance: strings.Repeat("ä", 100)})
			r.Eventf(d.ctx, configMap("a"), events.Normal, "Created", "Create", "created")
			testkit.Equal(t, r.Flush(d.ctx), nil)
			e := d.list()[0]
			if got := e.ReportingController; got != want || len(validation.IsQualifiedName(got)) > 0 {
				t.Errorf("%q becomes %q, want %q", name, got, want)
			}
			if got := e.ReportingInstance; len(got) > 128 || len(got) < 125 || !utf8.ValidString(got) {
				t.Errorf("the instance is %q", got)
			}
		})
	}
}

// TestEventName_IsValid for every name of an object.
func TestEventName_IsValid(t *testing.T) {
	for _, name := range []string{"a", "a.b-c", strings.Repeat("x", 253), strings.Repeat("x.", 126) + "x", "system:node", "UPPER"} {
		bubble(t, func(t *testing.T, d *desk) {
			d.fail(configMap(name), "broken")
			d.close()
			testkit.Len(t, validation.IsDNS1123Subdomain(d.list()[0].Name), 0, name)
		})
	}
}

// TestKind_IsThatOfTheObject if the object names it, else the scheme's kind.
func TestKind_IsThatOfTheObject(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
		obj.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
		d.Eventf(d.ctx, obj, events.Normal, "Scaled", "Scale", "scaled")
		d.Eventf(d.ctx, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}, events.Normal, "Scaled", "Scale", "scaled")
		d.close()
		kinds := map[string]string{}
		for _, e := range d.list() {
			kinds[e.Regarding.Name] = e.Regarding.APIVersion + " " + e.Regarding.Kind
		}
		testkit.Equal(t, kinds["a"], "apps/v1 Deployment", fmt.Sprintf("the kinds are %v", kinds))
		testkit.Equal(t, kinds["b"], "events.k8s.io/v1 Event", fmt.Sprintf("the kinds are %v", kinds))
	})
}
