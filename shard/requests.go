// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/internal/transport"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

// GroupLabel is the label of the Leases of a group's members, with the name of the group's Lease.
const GroupLabel = lease.GroupLabel

// requests are the driver's requests for Leases. group is the name of the group's Lease.
type requests struct {
	namespace, group string
	host             string // the API server, as in a ledger
	client           coordinationclient.LeaseInterface
	calls, watches   *run.Calls // a request may ignore its context
}

// requestLimit bounds one request, so that a server that hangs does not stop the driver.
const requestLimit = 5 * time.Second

func newRequests(cfg *rest.Config, namespace, group string) (requests, error) {
	cfg = lease.Config(cfg, "shard")
	// It has no effect if the configuration is a client.Client's.
	if err := transport.Wrap(cfg, transport.Options{}); err != nil {
		return requests{}, fmt.Errorf("shard.New: %w", err)
	}
	host, err := lease.Host(cfg)
	if err != nil {
		return requests{}, fmt.Errorf("shard.New: %w", err)
	}
	client, err := coordinationclient.NewForConfig(cfg)
	if err != nil {
		return requests{}, fmt.Errorf("shard.New: %w", err)
	}
	r := requests{namespace: namespace, group: group, host: host, client: client.Leases(namespace)}
	r.calls = &run.Calls{Of: "the Leases of the group " + r.String()}
	r.watches = &run.Calls{Of: "a watch of the Leases of the group " + r.String()}
	return r, nil
}

// String returns NAMESPACE/NAME of the group's Lease.
func (r *requests) String() string { return r.namespace + "/" + r.group }

func (r *requests) get(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	return run.Call(ctx, r.calls, requestLimit, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return r.client.Get(ctx, name, metav1.GetOptions{})
	})
}

// put updates a Lease, or creates it if it has no UID. The API server refuses the write if the
// Lease has changed.
func (r *requests) put(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return run.Call(ctx, r.calls, requestLimit, func(ctx context.Context) (*coordinationv1.Lease, error) {
		if l.UID == "" {
			return r.client.Create(ctx, l, metav1.CreateOptions{FieldManager: slots.Manager})
		}
		return r.client.Update(ctx, l, metav1.UpdateOptions{FieldManager: slots.Manager})
	})
}

// overtaken reports whether the API server refused a write because the Lease has changed.
func overtaken(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// remove deletes a Lease if it has not changed.
func (r *requests) remove(ctx context.Context, l *coordinationv1.Lease) error {
	_, err := run.Call(ctx, r.calls, requestLimit, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.client.Delete(ctx, l.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion},
		})
	})
	if overtaken(err) {
		return nil
	}
	return err
}

func (r *requests) deleteReleased(ctx context.Context, name string) error {
	l, err := r.get(ctx, name)
	if apierrors.IsNotFound(err) || err == nil && !lease.Released(l) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.remove(ctx, l)
}

// list returns the members' Leases, and the version of the list. It reads from etcd. Leases whose
// label was removed by hand are found by their names and annotations.
func (r *requests) list(ctx context.Context) ([]coordinationv1.Lease, uint64, error) {
	all, err := run.Call(ctx, r.calls, requestLimit, func(ctx context.Context) (*coordinationv1.LeaseList, error) {
		return r.client.List(ctx, metav1.ListOptions{})
	})
	if err != nil {
		return nil, 0, err
	}
	version, err := parseVersion(all.ResourceVersion)
	return slices.DeleteFunc(all.Items, func(l coordinationv1.Lease) bool { return !r.isMember(&l) }), version, err
}

// suffix is how many characters of a UUID are in the name of a member's Lease, after a dash.
const suffix = 8

// isMember reports whether a Lease is, or was, of a member of this group.
func (r *requests) isMember(l *coordinationv1.Lease) bool {
	of, labelled := l.Labels[GroupLabel]
	_, shows := l.Annotations[sessionAnnotation]
	return of == r.group || !labelled && shows && len(l.Name) == len(r.group)+1+suffix && strings.HasPrefix(l.Name, r.group+"-")
}

func parseVersion(text string) (uint64, error) {
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil || v == 0 {
		return 0, fmt.Errorf("the API server's resourceVersion %q is no number; a shard group needs versions that can be compared", text)
	}
	return v, nil
}
