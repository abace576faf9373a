// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/internal/apipath"
	"github.com/setpoint-dev/setpoint/internal/journal"
)

var errCrashed = errors.New("sweep: the process has crashed")

// write is a request that may change something.
type write struct {
	name      string // for Plan.Write
	nth       int
	verb      string
	resource  schema.GroupVersionResource
	under     bool   // by the operator
	by        string // the controller and the key, or empty if that is unknown
	step      int    // the steps that had begun
	effective bool
	slow      bool // it takes a second
}

// connection is between one process and the API server.
type connection struct {
	run   *run
	who   string
	under bool // the operator under test: faults apply
	rules *fault.Rules

	end context.CancelFunc // the process's context

	mu      sync.Mutex
	dead    bool
	leases  map[string]bool // by namespace/name: what it wrote
	renewed time.Time       // the newest Lease
	lasts   time.Duration   // the Lease
}

func (l *connection) crashed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// kill fails running and later requests.
func (l *connection) kill() {
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	l.rules.Stop()
	l.end()
}

// held returns the Leases that the process wrote, by namespace/name.
func (l *connection) held() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.leases))
}

// transport is a connection for one client.
type transport struct {
	*connection
	next http.RoundTripper
}

// WrappedRoundTripper is for closing idle connections.
func (l *transport) WrappedRoundTripper() http.RoundTripper { return l.next }

// RoundTrip implements http.RoundTripper.
func (l *transport) RoundTrip(h *http.Request) (*http.Response, error) {
	if l.crashed() {
		return nil, errCrashed
	}
	t := apipath.Parse(h.Method, h.URL.Path, h.URL.RawQuery)
	resp, err := l.exchange(h, t)
	l.run.writef(&l.run.record.requests, "%s %s %s: %s", l.who, t.Verb, h.URL.RequestURI(), outcome(resp, err))
	return resp, err
}

func (l *transport) exchange(h *http.Request, t apipath.Target) (*http.Response, error) {
	of := schema.GroupVersionResource{Group: t.Group, Version: t.Version, Resource: t.Resource}
	switch {
	case t.Resource == "":
		return l.next.RoundTrip(h)
	case t.Verb == "list" || t.Verb == "watch":
		return l.read(h, t, of)
	case t.Verb == "get" || h.URL.Query().Get("dryRun") != "":
		return l.next.RoundTrip(h)
	case of.GroupResource() == leases:
		return l.lease(h, t)
	case unobserved(of):
		return l.event(h, of)
	}
	l.run.history.follow(of)
	w := l.run.begin(l.connection, t, of)
	if j := journal.FromContext(h.Context()); j != nil {
		w.by = fmt.Sprint(j.Origin().Controller, " ", j.Origin().Key)
	}
	if w.slow {
		l.run.pause(time.Second)
	}
	resp, err := l.write(h, w, t.Namespace)
	l.run.logf("%s %s #%d: %s", l.who, w.name, w.nth, outcome(resp, err))
	return resp, err
}

func outcome(resp *http.Response, err error) string {
	if err != nil {
		return err.Error()
	}
	return resp.Status
}

// write sends a write, with the fault of the plan.
func (l *transport) write(h *http.Request, w *write, namespace string) (*http.Response, error) {
	f := None
	if l.under {
		l.run.outlived(l.connection, w)
		f = l.run.faultFor(w)
	}
	switch f {
	case CrashBefore:
		l.kill()
		return nil, errCrashed
	case Fail:
		return refuse(h, apierrors.NewForbidden(w.resource.GroupResource(), "x", errors.New("sweep: it fails once")))
	case Conflict:
		return refuse(h, apierrors.NewConflict(w.resource.GroupResource(), "x", errors.New("the object has been modified")))
	case Throttle:
		return refuse(h, apierrors.NewTooManyRequests("sweep: slow down", 1))
	case OldList:
		if err := l.run.outdate(h.Context(), w); err != nil {
			return nil, err
		}
	case None:
	default:
		l.run.beginLasting(l.connection, f, w) //nolint:contextcheck // it outlasts the request
	}
	resp, err := l.send(h, w, namespace)
	if err != nil {
		return resp, err
	}
	switch f {
	case CrashAfter, OldList, CrashThenStep, CrashThenAll:
		resp.Body.Close()
		l.kill()
		if f == CrashThenStep || f == CrashThenAll {
			close(l.run.down)
		}
		return nil, errCrashed
	case LoseAnswer, LoseAnswerLate:
		resp.Body.Close()
		return nil, fmt.Errorf("sweep: the answer is lost: %w", syscall.ECONNRESET)
	case LateThenStep, CoalesceThenStep:
		close(l.run.hasty)
	case HandOver:
		l.end()
	}
	return resp, nil
}

// send learns from the answer what the write has done.
func (l *transport) send(h *http.Request, w *write, namespace string) (*http.Response, error) {
	if strings.Contains(h.Header.Get("Accept"), "protobuf") {
		h = h.Clone(h.Context())
		h.Header.Set("Accept", "application/json")
	}
	resp, err := l.next.RoundTrip(h)
	if err != nil || resp.StatusCode > 299 && resp.StatusCode != http.StatusConflict {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusConflict {
		var s metav1.Status
		if json.Unmarshal(body, &s) == nil {
			l.run.refused(w, l.who, namespace, &s)
		}
		return resp, nil
	}
	var obj struct {
		metav1.TypeMeta `json:",inline"`

		Metadata metav1.ObjectMeta     `json:"metadata"`
		Details  *metav1.StatusDetails `json:"details"`
	}
	if err := json.Unmarshal(body, &obj); err != nil {
		return nil, fmt.Errorf("sweep: the answer to %s is not JSON: %w", w.name, err)
	}
	if obj.Kind == "Status" && obj.APIVersion == "v1" && obj.Details != nil { // of a delete
		obj.Metadata.Namespace, obj.Metadata.Name = namespace, obj.Details.Name
	}
	l.run.answered(w, l.who, obj.Metadata)
	return resp, nil
}

// read counts watched kinds, and shows old lists.
func (l *transport) read(h *http.Request, t apipath.Target, of schema.GroupVersionResource) (*http.Response, error) {
	if !l.under {
		return l.next.RoundTrip(h)
	}
	q, verb := h.URL.Query(), t.Verb
	switch {
	case verb == "watch" && of.GroupResource() != leases:
		l.run.watches(of, viewOf(of.GroupResource(), t.Namespace, q, h.Header.Get("Accept")))
	case q.Get("resourceVersion") == "0":
		l.run.lists(of)
	}
	old, stale := l.run.oldList(l.connection, of)
	switch {
	case l.run.plainLists && verb == "watch" && q.Get("sendInitialEvents") != "":
		return refuse(h, noStreams())
	case stale && verb == "watch" && q.Get("sendInitialEvents") != "":
		return refuse(h, noStreams())
	case stale && verb == "list" && q.Get("continue") == "" && q.Get("resourceVersion") != "":
		q.Set("resourceVersion", old)
		q.Set("resourceVersionMatch", "Exact")
	case l.run.plan.Fault == NoBookmarks && verb == "watch":
		l.run.fire()
		return withoutBookmarks(h, l.next)
	default:
		return l.next.RoundTrip(h)
	}
	h = h.Clone(h.Context())
	h.URL.RawQuery = q.Encode()
	if stale && verb == "list" {
		l.run.servedOld(l.connection, of)
	}
	return l.next.RoundTrip(h)
}

// noStreams is the answer of an API server that cannot stream lists.
func noStreams() *apierrors.StatusError {
	return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", nil)
}

// lease sends a write of a Lease.
func (l *transport) lease(h *http.Request, t apipath.Target) (*http.Response, error) {
	if !l.under {
		return l.next.RoundTrip(h)
	}
	l.run.usesLeases()
	if l.run.leaseRefused() {
		return refuse(h, apierrors.NewInternalError(errors.New("sweep: Leases cannot be written")))
	}
	began := time.Now()
	if strings.Contains(h.Header.Get("Accept"), "protobuf") {
		h = h.Clone(h.Context())
		h.Header.Set("Accept", "application/json")
	}
	resp, err := l.next.RoundTrip(h)
	if err != nil || resp.StatusCode > 299 || t.Verb == "delete" {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var lease coordinationv1.Lease
	if err != nil || json.Unmarshal(body, &lease) != nil {
		return resp, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[t.Namespace+"/"+lease.Name], l.renewed = true, began
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		l.lasts = max(l.lasts, time.Duration(*s)*time.Second)
	}
	return resp, nil
}

// event sends a write that is neither faulted nor compared. It keeps Events.
func (l *transport) event(h *http.Request, of schema.GroupVersionResource) (*http.Response, error) {
	if of.Resource == "events" && h.Body != nil {
		body, err := io.ReadAll(h.Body)
		h.Body.Close()
		if err != nil {
			return nil, err
		}
		h = h.Clone(h.Context())
		h.Body = io.NopCloser(bytes.NewReader(body))
		l.run.writef(&l.run.record.events, "%s: %s", l.who, strings.ToValidUTF8(string(body), "."))
	}
	return l.next.RoundTrip(h)
}

// refuse answers in place of the API server.
func refuse(h *http.Request, err *apierrors.StatusError) (*http.Response, error) {
	if h.Body != nil {
		h.Body.Close()
	}
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, failed := json.Marshal(status)
	if failed != nil {
		return nil, failed
	}
	resp := &http.Response{
		StatusCode: int(status.Code), Status: fmt.Sprintf("%d %s (by sweep)", status.Code, http.StatusText(int(status.Code))),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: h,
	}
	if s := status.Details; s != nil && s.RetryAfterSeconds > 0 {
		resp.Header.Set("Retry-After", fmt.Sprint(s.RetryAfterSeconds))
	}
	return resp, nil
}

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// unobserved reports whether writes of a resource are neither faulted nor compared.
func unobserved(of schema.GroupVersionResource) bool {
	switch of.Group {
	case "events.k8s.io", "authorization.k8s.io", "authentication.k8s.io", "coordination.k8s.io":
		return true
	case "":
		return of.Resource == "events"
	}
	return false
}
