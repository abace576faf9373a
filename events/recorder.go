// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

// Type is the type of an event.
type Type string

// The types of an event.
const (
	Normal  = Type(corev1.EventTypeNormal)
	Warning = Type(corev1.EventTypeWarning)
)

// Options configures New.
type Options struct {
	// Name is the name of the program, for reportingController. Required by New. Invalid characters
	// become '-', and a longer name is cut to 63 bytes.
	Name string
	// Instance identifies this process, for reportingInstance. It is cut at 128 bytes. Default: the
	// host name.
	Instance string
	// Namespace has the events about cluster-scoped objects. kubectl describe shows them in default
	// and kube-system. In another namespace, kubectl events --for=KIND/NAME -n NAMESPACE does: the
	// API server accepts them there only with that namespace in regarding. Default: default.
	Namespace string
	// Hook gets the recorder's events. Default: none.
	Hook *hook.Hook
}

// Recorder records events and sends them. [Recorder.Run] sends: run it in one goroutine. All
// methods are safe for concurrent use.
type Recorder struct {
	name, instance string
	namespace      string // of events about cluster-scoped objects
	hosted         bool   // by For: its client is the manager's
	scheme         *runtime.Scheme
	rest           rest.Interface
	err            error // a wiring mistake, which Run returns
	hook           *hook.Hook
	kinds          sync.Map      // schema.GroupVersionKind by reflect.Type
	wake           chan struct{} // more may be due than at the last look
	sending        chan struct{} // has an element while a goroutine sends
	log            logging.Repetition

	mu       sync.Mutex // guards what follows
	schedule *schedule
	closed   bool // records nothing
	over     bool // tries nothing again
}

// New makes a recorder. It starts nothing and makes no request. Events before [Recorder.Run] wait
// for it. Run returns the error if the options or the client's configuration are invalid.
func New(c *client.Client, o Options) *Recorder {
	if o.Instance == "" {
		o.Instance, _ = os.Hostname()
	}
	r := &Recorder{
		name: reporter(o.Name), instance: cut(printable(o.Instance), maxInstance),
		namespace: cmp.Or(o.Namespace, metav1.NamespaceDefault), scheme: c.Scheme(),
		wake: make(chan struct{}, 1), sending: make(chan struct{}, 1), schedule: newSchedule(), hook: o.Hook,
	}
	api, err := eventsclient.NewForConfigAndClient(c.Config(), c.HTTPClient())
	if err != nil {
		r.err = fmt.Errorf("events.New: %w", err)
		return r
	}
	r.rest = api.RESTClient()
	if wrong := validation.IsDNS1123Label(r.namespace); len(wrong) > 0 {
		r.err = fmt.Errorf("events.Options.Namespace: %q is not the name of a namespace: %s", o.Namespace, strings.Join(wrong, "; "))
	}
	return r
}

// Manager is what For uses of a *manager.Manager.
type Manager interface {
	Name() string
	Identity() string
	Client() *client.Client
	Hook() *hook.Hook
	AddRecorder(r term.Recorder)
}

// For makes a recorder that m runs. Call it before or during m's Run. Name and Instance default to
// m's name and Identity, and m's Hook is joined with o.Hook. m sends the events of a term
// before it releases the Lease, for at most 2 seconds, and all others before its Run returns,
// within the grace time.
//
// The recorder writes to m's own cluster, and drops an event whose namespace does not exist there.
// For events in another cluster, pass New(cluster.Client(), …) to m.AddRecorder.
func For(m Manager, o Options) *Recorder {
	o.Name, o.Instance = cmp.Or(o.Name, m.Name()), cmp.Or(o.Instance, m.Identity())
	o.Hook = hook.Join(o.Hook, m.Hook())
	r := New(m.Client(), o)
	r.hosted = true
	m.AddRecorder(r)
	return r
}

// Eventf records that something happened to an object. It returns at once. The object may be gone,
// but it must have a name and a kind that the client's scheme knows.
//
//   - t is Normal or Warning.
//   - reason is a short word in CamelCase that programs can compare, such as Created.
//   - action is what the controller did or tried, such as CreateConfigMap. Default: the reason.
//   - note is the text for people, formatted with args as by fmt.Sprintf. Without args it is taken
//     as it is.
//
// reason and action have at most 128 bytes. Invalid arguments are logged once for each kind and
// reason, and reported as dropped. In a Reconcile, pass its context: the event is then sent under
// its term, before the Lease is released, or after that if events cannot be written.
func (r *Recorder) Eventf(ctx context.Context, obj object.Object, t Type, reason, action, note string, args ...any) {
	k, version, err := r.key(ctx, obj, t, reason, cmp.Or(action, reason))
	if err != nil {
		if r.log.Once("invalid", k.kind, k.reason) {
			logging.Of(ctx).WarnContext(ctx, "an event is dropped", "err", err, "kind", k.kind, "reason", k.reason)
		}
		r.dropped(k, "invalid", 1)
		return
	}
	if len(args) > 0 {
		note = fmt.Sprintf(note, args...)
	}
	if k.term != nil && errors.Is(k.term.Trusted(), fence.ErrReturned) {
		r.dropped(k, "recorded after the work of its term has returned", 1)
		return
	}
	why, wake := r.record(k, call{note: cut(printable(note), maxNote), version: version, at: time.Now()})
	if why != "" {
		r.dropped(k, why, 1)
	}
	if wake {
		run.Poke(r.wake)
	}
}

// record sets wake if Run must look for what is due.
func (r *Recorder) record(k key, c call) (why string, wake bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return "recorded after the stop", false
	}
	joined, ok := r.schedule.add(k, c)
	if !ok {
		return "too many series wait", false
	}
	return "", !joined
}

func (r *Recorder) key(ctx context.Context, obj object.Object, t Type, reason, action string) (k key, version string, err error) {
	k = key{eventType: t, reason: reason, action: action, term: term.FromContext(ctx)}
	if argument.IsNil(obj) {
		return k, "", fmt.Errorf("the object is nil")
	}
	gvk, err := r.kindOf(obj)
	k.regarding = regarding{gvk.Group, gvk.Kind, obj.GetNamespace(), obj.GetName(), obj.GetUID()}
	switch {
	case err != nil:
		return k, "", fmt.Errorf("the kind of a %T is unknown; add it to the scheme of the client: %w", obj, err)
	case k.name == "":
		return k, "", fmt.Errorf("the object has no name; record the event after it is created")
	case t != Normal && t != Warning:
		return k, "", fmt.Errorf("the type is %q; use events.Normal or events.Warning", t)
	case !valid(reason):
		return k, "", fmt.Errorf("the reason is %q; use a short word in CamelCase, of at most %d bytes", cut(reason, maxNote), maxWord)
	case !valid(action):
		return k, "", fmt.Errorf("the action is %q; use a short word in CamelCase, of at most %d bytes", cut(action, maxNote), maxWord)
	}
	return k, gvk.Version, nil
}

// kindOf prefers the kind in the object, which dynamic clients set.
func (r *Recorder) kindOf(obj object.Object) (schema.GroupVersionKind, error) {
	if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.Kind != "" && gvk.Version != "" {
		return gvk, nil
	}
	t := reflect.TypeOf(obj)
	if gvk, ok := r.kinds.Load(t); ok {
		return gvk.(schema.GroupVersionKind), nil
	}
	gvks, _, err := r.scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{Kind: strings.TrimPrefix(t.String(), "*")}, err
	}
	r.kinds.Store(t, gvks[0])
	return gvks[0], nil
}

func (r *Recorder) dropped(k key, why string, calls int) {
	r.hook.Send(&hook.EventDropped{Kind: k.kind, Type: string(k.eventType), Reason: k.reason, Why: why, Events: calls})
}
