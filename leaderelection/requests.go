// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/run"
)

const resource = "leases"

type leases struct {
	o       Options
	rest    rest.Interface
	calls   run.Calls // all requests but watches
	watches run.Calls // one that hangs does not count: the elector polls then

	elsewhere string // the API server of Options.Config, for errors
}

func (e *leases) String() string { return e.o.Namespace + "/" + e.o.Lease }

func (e *leases) timeout() time.Duration { return max(time.Second, e.o.RenewDeadline/2) }

func (e *leases) do(ctx context.Context, r *rest.Request) (*coordinationv1.Lease, error) {
	lease, err := run.Call(ctx, &e.calls, e.timeout(), func(ctx context.Context) (*coordinationv1.Lease, error) {
		lease := &coordinationv1.Lease{}
		return lease, r.MaxRetries(0).Do(ctx).Into(lease)
	})
	if err != nil {
		return nil, err
	}
	if !e.isOurs(lease) || lease.UID == "" || lease.ResourceVersion == "" {
		return nil, fmt.Errorf("the answer to a request for the Lease %s is not that Lease", e)
	}
	return lease, nil
}

func (e *leases) isOurs(l *coordinationv1.Lease) bool {
	return l.Namespace == e.o.Namespace && l.Name == e.o.Lease
}

// stored checks an answer: an admission webhook may have made another process the holder.
func (e *leases) stored(sent, got *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	switch {
	case err != nil:
		return nil, err
	case lease.Holder(got) == lease.Holder(sent) && lease.Duration(got) >= lease.Duration(sent) && got.Spec.RenewTime.Equal(sent.Spec.RenewTime) &&
		(sent.UID == "" || got.UID == sent.UID):
		return got, nil
	}
	return nil, fmt.Errorf("the API server changed the Lease %s while storing it; "+
		"look for an admission webhook that changes Leases", e)
}

func (e *leases) read(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := e.do(ctx, e.rest.Get().Namespace(e.o.Namespace).Resource(resource).Name(e.o.Lease))
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	return lease, e.explained("get", err)
}

func (e *leases) create(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	lease, err := e.do(ctx, e.rest.Post().Namespace(e.o.Namespace).Resource(resource).Body(l))
	return e.stored(l, lease, e.explained("create", err))
}

func (e *leases) update(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	lease, err := e.do(ctx, e.rest.Put().Namespace(e.o.Namespace).Resource(resource).Name(e.o.Lease).Body(l))
	return e.stored(l, lease, e.explained("update", err))
}

// watch needs only a rule with the Lease in its resourceNames. Call stop.
func (e *leases) watch(ctx context.Context, since string, limit time.Duration) (events <-chan watch.Event, stop func(), err error) {
	r := e.rest.Get().Namespace(e.o.Namespace).Resource(resource).VersionedParams(&metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, e.o.Lease).String(), ResourceVersion: since,
		Watch: true, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(watchLimit / time.Second)),
	}, scheme.ParameterCodec).MaxRetries(0)
	stream, stop, err := run.Open(ctx, &e.watches, min(limit, e.timeout()), r.Watch, lease.EndWatch)
	if err != nil {
		return nil, nil, e.explained("watch", err)
	}
	return stream.ResultChan(), stop, nil
}

const watchLimit = 5 * time.Minute

func (e *leases) leaseOf(event watch.Event) (*coordinationv1.Lease, error) {
	lease, ok := event.Object.(*coordinationv1.Lease)
	switch {
	case event.Type == "": // the watch has ended
	case event.Type == watch.Error:
		return nil, apierrors.FromObject(event.Object)
	case event.Type == watch.Bookmark:
	case !ok || !e.isOurs(lease):
		return nil, fmt.Errorf("the API server sent a %s of another object (%T) to a watch of the Lease %s", event.Type, event.Object, e)
	case event.Type == watch.Deleted:
	default:
		return lease, nil
	}
	return nil, nil //nolint:nilnil // there is none
}

func delayOf(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}

func (e *leases) explained(verb string, err error) error {
	err = e.remedied(verb, err)
	if err == nil || e.elsewhere == "" {
		return err
	}
	return fmt.Errorf("the API server of the Lease, %s: %w", e.elsewhere, err)
}

// remedied replaces the message of an error by its remedy, if that is outside of this process.
func (e *leases) remedied(verb string, err error) error {
	says := ""
	switch o := &e.o; {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		says = fmt.Sprintf("the namespace %s of the Lease %s is being deleted; create it again when it is gone, or name another", o.Namespace, o.Lease)
	case apierrors.IsNotFound(err) && verb == "create":
		says = fmt.Sprintf("the namespace %s of the Lease %s does not exist; create it", o.Namespace, o.Lease)
	case apierrors.IsForbidden(err):
		if m := refusal.FindStringSubmatch(err.Error()); m != nil { // else a quota
			says = fmt.Sprintf("the user %s may not %s leases (coordination.k8s.io) in the namespace %s, here %s; grant it, by a Role and a "+
				"RoleBinding there, %s", m[1], verb, o.Namespace, o.Lease, o.rights())
		}
	}
	var status *apierrors.StatusError
	if says == "" || !errors.As(err, &status) {
		return err
	}
	told := *status
	told.ErrStatus.Message = says
	return &told
}

// rights are those that an elector needs.
func (o *Options) rights() string {
	if _, ok := o.Labels[lease.GroupLabel]; ok {
		return "to create, get, list, watch, update and delete leases, without resourceNames: the members of a shard group have random ones"
	}
	return "to create leases, and to get, update and watch the one with the resourceName " + o.Lease
}

var refusal = regexp.MustCompile(`User ("[^"]*") cannot \w+ resource`)
