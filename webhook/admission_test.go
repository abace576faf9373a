// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/webhook"
)

const thing = `{"apiVersion":"test.example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"size":1}}`

func sized(size int) string {
	return strings.Replace(thing, `"size":1`, fmt.Sprintf(`"size":%d`, size), 1)
}

func TestValidate_CallsTheFunctionOfTheOperation(t *testing.T) {
	var called []string
	note := func(op string) func(context.Context, *Thing) error {
		return func(_ context.Context, o *Thing) error {
			called = append(called, fmt.Sprint(op, " ", o.Spec.Size))
			return nil
		}
	}
	w := newHooks()
	webhook.AddValidator(w, webhook.Validator[*Thing]{
		Create: note("create"), Delete: note("delete"),
		Update: func(_ context.Context, old, o *Thing) error {
			called = append(called, fmt.Sprint("update ", old.Spec.Size, " ", o.Spec.Size))
			return nil
		},
	}, webhook.Registration{})
	h := handlerOf(t, w)
	for _, r := range []*admissionv1.AdmissionRequest{
		request(admissionv1.Create, sized(1), ""), request(admissionv1.Update, sized(3), sized(2)),
		request(admissionv1.Delete, "", sized(4)), request(admissionv1.Connect, "", ""),
	} {
		if got := ask(t, h, validatePath, r); !got.Allowed || got.Patch != nil {
			t.Errorf("%s: %v", r.Operation, got)
		}
	}
	testkit.DeepEqual(t, called, []string{"create 1", "update 2 3", "delete 4"})
}

func TestValidate_NilFunctionsAllow(t *testing.T) {
	w := newHooks()
	webhook.AddValidator(w, webhook.Validator[*Thing]{Delete: func(context.Context, *Thing) error { return errors.New("no") }}, webhook.Registration{})
	h := handlerOf(t, w)
	for _, r := range []*admissionv1.AdmissionRequest{request(admissionv1.Create, thing, ""), request(admissionv1.Update, thing, thing)} {
		testkit.Equal(t, ask(t, h, validatePath, r).Allowed, true, r.Operation)
	}
}

func TestValidate_ErrorsBecomeStatuses(t *testing.T) {
	path := field.NewPath("spec", "size")
	list := field.ErrorList{field.Invalid(path, 1, "must be even"), field.Required(field.NewPath("spec", "name"), "")}
	causes := []metav1.StatusCause{
		{Type: "FieldValueInvalid", Message: "Invalid value: 1: must be even", Field: "spec.size"},
		{Type: "FieldValueRequired", Message: "Required value", Field: "spec.name"},
	}
	for name, c := range map[string]struct {
		err     error
		code    int32
		reason  metav1.StatusReason
		message string
		causes  []metav1.StatusCause
	}{
		"a list of field errors":  {list.ToAggregate(), 422, "Invalid", `Thing.test.example.com "a" is invalid: [spec.size: Invalid value: 1: must be even, spec.name: Required value]`, causes},
		"a wrapped list":          {fmt.Errorf("size: %w", list.ToAggregate()), 422, "Invalid", `Thing.test.example.com "a" is invalid: [spec.size: Invalid value: 1: must be even, spec.name: Required value]`, causes},
		"one field error":         {list[0], 422, "Invalid", `Thing.test.example.com "a" is invalid: spec.size: Invalid value: 1: must be even`, causes[:1]},
		"an API error":            {fmt.Errorf("size: %w", apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", errors.New("changed"))), 409, "Conflict", `Operation cannot be fulfilled on things "a": changed`, nil},
		"any other error":         {errors.New("things are closed"), 403, "Forbidden", "things are closed", nil},
		"joined field errors":     {errors.Join(list[0], list[1]), 422, "Invalid", `Thing.test.example.com "a" is invalid: [spec.size: Invalid value: 1: must be even, spec.name: Required value]`, causes},
		"field errors and others": {errors.Join(list[0], errors.New("closed")), 403, "Forbidden", "spec.size: Invalid value: 1: must be even\nclosed", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHooks()
			webhook.AddValidator(w, webhook.Validator[*Thing]{Create: func(context.Context, *Thing) error { return c.err }}, webhook.Registration{})
			got := ask(t, handlerOf(t, w), validatePath, request(admissionv1.Create, thing, ""))
			if got.Allowed || got.Result.Status != metav1.StatusFailure || got.Result.Code != c.code || got.Result.Reason != c.reason || got.Result.Message != c.message {
				t.Errorf("%v %v", got.Allowed, got.Result)
			}
			if c.causes != nil && (got.Result.Details == nil || !reflect.DeepEqual(got.Result.Details.Causes, c.causes)) {
				t.Errorf("the details are %v", got.Result.Details)
			}
		})
	}
}

func TestDefault_OnlyForNewAndChangedObjects(t *testing.T) {
	w := newHooks()
	webhook.AddDefaulter(w, func(_ context.Context, o *Thing) error {
		o.Spec.Size = 9
		if o.Spec.Name == "bad" {
			return errors.New("bad")
		}
		return nil
	}, webhook.Registration{})
	h := handlerOf(t, w)
	const patch = `[{"op":"replace","path":"/spec/size","value":9}]`
	for _, op := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
		if got := ask(t, h, defaultPath, request(op, thing, thing)); !got.Allowed || string(got.Patch) != patch {
			t.Errorf("%s: %v %s", op, got.Result, got.Patch)
		}
	}
	if got := ask(t, h, defaultPath, request(admissionv1.Delete, "", thing)); !got.Allowed || got.Patch != nil {
		t.Errorf("a deletion: %v", got)
	}
	bad := strings.Replace(thing, `"size"`, `"name":"bad","size"`, 1)
	if got := ask(t, h, defaultPath, request(admissionv1.Create, bad, "")); got.Allowed || got.Patch != nil || got.Result.Message != "bad" {
		t.Errorf("after an error: %v", got)
	}
}

func TestDefault_KeepsTheKindOfAReplacedObject(t *testing.T) {
	patched, _ := defaulted(t, []byte(thing), func(o *Thing) { *o = Thing{Spec: Part{Size: 2}} })
	if got := parse(t, patched); got.Kind != "Thing" || got.APIVersion != "test.example.com/v1" || got.Spec.Size != 2 {
		t.Errorf("it is %s", patched)
	}
}

func TestAnObjectThatDoesNotFitIsRejectedWithASentence(t *testing.T) {
	w := newHooks()
	webhook.AddValidator(w, webhook.Validator[*Thing]{Create: func(context.Context, *Thing) error { return nil }}, webhook.Registration{})
	h := handlerOf(t, w)
	other := request(admissionv1.Create, thing, "")
	other.Kind.Version = "v2"
	for _, c := range []struct {
		request *admissionv1.AdmissionRequest
		want    string
	}{
		{other, "the webhook was called with a Thing.v2.test.example.com, but its function takes a Thing.v1.test.example.com; correct the rules of its configuration"},
		{request(admissionv1.Create, "", ""), "the request to CREATE a Thing.v1.test.example.com has no object; correct the rules of the webhook's configuration"},
		{request(admissionv1.Create, `{"spec":{"size":"big"}}`, ""), `the webhook cannot decode the Thing.v1.test.example.com "a" as *webhook_test.Thing: json: cannot unmarshal string into Go struct field Part.spec.size of type int64`},
	} {
		if got := ask(t, h, validatePath, c.request); got.Allowed || got.Result.Code != 400 || got.Result.Message != c.want {
			t.Errorf("%v", got.Result)
		}
	}
}

func TestFieldNamesAreCaseSensitive(t *testing.T) {
	w := newHooks()
	webhook.AddValidator(w, webhook.Validator[*Thing]{Create: func(_ context.Context, o *Thing) error {
		return fmt.Errorf("size %d", o.Spec.Size)
	}}, webhook.Registration{})
	testkit.Equal(t, ask(t, handlerOf(t, w), validatePath, request(admissionv1.Create, `{"spec":{"SIZE":7}}`, "")).Result.Message, "size 0")
}

func registration(name string) webhook.Registration {
	return webhook.Registration{Name: name, Rules: []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Connect},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"test.example.com"}, APIVersions: []string{"v1"}, Resources: []string{"things/shell"}},
	}}}
}

func TestHandlers_AnswerAsTheyLike(t *testing.T) {
	shared := &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[]`), Warnings: make([]string, 0, 8)}
	w := newHooks()
	w.Mutating(func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		testkit.Equal(t, webhook.RequestFromContext(ctx), r, "RequestFromContext returns another request")
		webhook.Warnf(ctx, "use %s", "tea")
		return shared, nil
	}, registration("patch.test.example.com"))
	w.Validating(func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return nil, nil
	}, registration("allow.test.example.com"))
	w.Validating(func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return shared, nil
	}, registration("wrong.test.example.com"))
	h := handlerOf(t, w)
	r := request(admissionv1.Connect, "", "")
	got := ask(t, h, "/patch.test.example.com", r)
	if !got.Allowed || *got.PatchType != admissionv1.PatchTypeJSONPatch || !reflect.DeepEqual(got.Warnings, []string{"use tea"}) {
		t.Error(got)
	}
	testkit.Equal(t, shared.UID, "", "the handler's response has changed")
	testkit.Equal(t, shared.PatchType, nil, "the handler's response has changed")
	if got := ask(t, h, "/allow.test.example.com", r); !got.Allowed || got.PatchType != nil {
		t.Error(got)
	}
	if got := post(h, "/wrong.test.example.com", reviewOf(t, r)); got.Code != 500 || got.Body.String() != "webhook wrong.test.example.com: the response of a validating webhook has a patch; use Mutating" {
		t.Error(got.Code, got.Body)
	}
}

func TestOutsideOfACallThereIsNoRequest(t *testing.T) {
	webhook.Warnf(t.Context(), "nothing happens")
	testkit.Equal(t, webhook.RequestFromContext(t.Context()), nil)
}

func TestMistakesAreNamed(t *testing.T) {
	create := func(context.Context, *Thing) error { return nil }
	raw := func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return nil, nil
	}
	for _, c := range []struct {
		add  func(w *webhook.Webhooks)
		want string
	}{
		{func(w *webhook.Webhooks) { webhook.AddDefaulter[*Thing](w, nil, webhook.Registration{}) }, "webhook.AddDefaulter: the function is nil"},
		{func(w *webhook.Webhooks) {
			webhook.AddValidator(w, webhook.Validator[*Thing]{}, webhook.Registration{})
		}, "webhook.AddValidator: the Validator has no function; set Create, Update or Delete"},
		{
			func(w *webhook.Webhooks) {
				webhook.AddDefaulter(w, func(context.Context, *unstructured.Unstructured) error { return nil }, webhook.Registration{})
			},
			"webhook.AddDefaulter: Options.Scheme does not have the type *unstructured.Unstructured; add it to the scheme, or use Mutating or Validating for objects without a Go type",
		},
		{
			func(w *webhook.Webhooks) {
				for range 2 {
					webhook.AddValidator(w, webhook.Validator[*Thing]{Create: create}, webhook.Registration{})
				}
			},
			`webhook.AddValidator: two webhooks are named "validate.things.test.example.com"; set Registration.Name to a name of its own`,
		},
		{func(w *webhook.Webhooks) { w.Mutating(nil, registration("a.b.c")) }, "webhook.Mutating: the handler is nil"},
		{func(w *webhook.Webhooks) { w.Validating(raw, webhook.Registration{}) }, "webhook.Validating: Registration.Name is empty; set a name of at least three parts, such as bindings.web.example.com"},
		{func(w *webhook.Webhooks) { w.Validating(raw, webhook.Registration{Name: "a.b.c"}) }, "webhook.Validating: Registration.Rules is empty; list the operations and resources of the handler"},
	} {
		w := newHooks()
		c.add(w)
		testkit.ErrorContains(t, w.Validate(), c.want)
	}
	w := webhook.New(webhook.Options{})
	webhook.AddDefaulter(w, create, webhook.Registration{})
	testkit.ErrorContains(t, w.Validate(), "webhook.Options.Scheme: it is nil; set the scheme that has the types of the webhooks")
}

func TestBodies_AreRefusedWithASentence(t *testing.T) {
	w := newHooks()
	webhook.AddValidator(w, webhook.Validator[*Thing]{Create: func(context.Context, *Thing) error { return nil }}, webhook.Registration{})
	h := handlerOf(t, w)
	good := string(reviewOf(t, request(admissionv1.Create, thing, "")))
	const prefix = "webhook validate.things.test.example.com: "
	for _, c := range []struct {
		name, body, media, method, query string
		code                             int
		want                             string
	}{
		{name: "empty", code: 400, want: "the body is empty; send a review"},
		{name: "text", body: "hello", code: 400, want: "the body is not an AdmissionReview: invalid character 'h' looking for beginning of value"},
		{name: "cut off", body: good[:len(good)-2], code: 400, want: "the body is not an AdmissionReview: unexpected end of JSON input"},
		{name: "deep", body: strings.Repeat("[", 1<<20), code: 400, want: "the body is not an AdmissionReview: invalid character '[' exceeded max depth"},
		{name: "version", body: strings.Replace(good, "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1), code: 400, want: `the body is a "AdmissionReview" of "admission.k8s.io/v1beta1", not an AdmissionReview of admission.k8s.io/v1; check the path and admissionReviewVersions in the webhook configuration`},
		{name: "kind", body: strings.Replace(good, "AdmissionReview", "ConversionReview", 1), code: 400, want: `the body is a "ConversionReview" of "admission.k8s.io/v1", not`},
		{name: "no request", body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, code: 400, want: "the AdmissionReview has no request"},
		{name: "no uid", body: strings.Replace(good, `"uid":"7c5a"`, `"uid":""`, 1), code: 400, want: "the request of the AdmissionReview has no uid"},
		{name: "too long", body: strings.Repeat(" ", 7<<20+1), code: 413, want: "the body has 7340033 bytes; the limit is 7340032"},
		{name: "protobuf", body: good, media: "application/vnd.kubernetes.protobuf", code: 415, want: `the content type is "application/vnd.kubernetes.protobuf"; send a review as application/json`},
		{name: "get", body: good, method: http.MethodGet, code: 405, want: "the method is GET; the API server sends a review with POST"},
		{name: "timeout", body: good, query: "?timeout=soon", code: 400, want: `the timeout in the URL is "soon"; send a duration such as 10s`},
		{name: "negative timeout", body: good, query: "?timeout=-1s", code: 400, want: `the timeout in the URL is "-1s"; send a duration such as 10s`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := send(h, c.method, validatePath+c.query, c.media, strings.NewReader(c.body))
			testkit.Equal(t, got.Code, c.code)
			testkit.HasPrefix(t, got.Body.String(), prefix+c.want)
		})
	}
	if got := post(h, "/nothing", []byte(good)); got.Code != 404 || got.Body.String() != "no webhook has the path \"/nothing\"; its configuration may be of another version of the operator\n" {
		t.Error(got.Code, got.Body)
	}
	testkit.Equal(t, send(h, "", validatePath, "application/json; charset=utf-8", strings.NewReader(good)).Code, 200)
}

// endless is a body that announces no length.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func TestBodies_HaveBoundedMemory(t *testing.T) {
	w := newHooks()
	webhook.AddValidator(w, webhook.Validator[*Thing]{Create: func(context.Context, *Thing) error { return nil }}, webhook.Registration{})
	h := handlerOf(t, w)
	body := &endless{}
	if got := send(h, "", validatePath, "", body); got.Code != 413 || !strings.Contains(got.Body.String(), "the body has more than 7340032 bytes, the limit") {
		t.Error(got.Code, got.Body)
	}
	testkit.AtMost(t, body.read, 16<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	announced := newRequest("", validatePath, "", strings.NewReader("{}"))
	announced.ContentLength = 7 << 20
	testkit.Equal(t, serve(h, announced).Code, 400)
	runtime.ReadMemStats(&after)
	testkit.AtMost(t, after.TotalAlloc-before.TotalAlloc, 2<<20)
}

// TestHooks_AnUnknownOperation is rejected: it may change an object, and no function has seen it.
func TestHooks_AnUnknownOperation(t *testing.T) {
	w := newHooks()
	webhook.AddDefaulter(w, func(context.Context, *Thing) error { return nil }, webhook.Registration{})
	webhook.AddValidator(w, webhook.Validator[*Thing]{Create: func(context.Context, *Thing) error { return nil }}, webhook.Registration{})
	h := handlerOf(t, w)
	for _, url := range []string{defaultPath, validatePath} {
		for op, allowed := range map[admissionv1.Operation]bool{"": false, "PATCH": false, "create": false, admissionv1.Connect: true, admissionv1.Delete: true} {
			got := ask(t, h, url, request(op, thing, ""))
			testkit.Equal(t, got.Allowed, allowed, url, op, "allowed")
			want := fmt.Sprintf("the operation %q of the AdmissionReview is unknown; it must be CREATE, UPDATE, DELETE or CONNECT", op)
			if !allowed && (got.Result == nil || got.Result.Message != want || got.Result.Code != http.StatusBadRequest) {
				t.Errorf("%s, %q: the result is %+v", url, op, got.Result)
			}
		}
	}
}
