// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
)

// Request is one HTTP request that was made with a ledger in its context. Each retry that client-go makes is one more.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection; for a path that names no resource, such
	// as /version, the HTTP method in lower case.
	Verb string
	// Group, Version and Resource are those of the path, such as apps, v1 and deployments. Resource is empty when the path
	// names none.
	Group, Version, Resource string
	// Subresource is what follows the name, such as status.
	Subresource string
	// Namespace is empty for cluster-scoped kinds, namespaces included.
	Namespace string
	// Name is empty for lists, unless the field selector asks for one name. For a create it is what the answer says.
	Name string
	// Host is where the API server is: scheme://host, and what a proxy in front of several adds before /api and /apis. Path is
	// the whole path, as sent.
	Host, Path string
	// DryRun says that the API server was asked to store nothing.
	DryRun bool
	// Started is when the request was made. Took is how long it was until the answer began, or the error came; 0 as long as
	// neither did.
	Started time.Time
	Took    time.Duration
	// Status is the HTTP status of the answer, 0 as long as, or if, there was none. Err is then why.
	Status int
	Err    error
}

// GroupVersionResource returns the resource in one value.
func (r *Request) GroupVersionResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

// String says it in one line.
func (r *Request) String() string {
	var s strings.Builder
	s.WriteString(r.Verb + " ")
	if r.Resource == "" {
		s.WriteString(r.Path)
		return s.String()
	}
	s.WriteString(r.GroupVersionResource().GroupResource().String())
	if r.Subresource != "" {
		s.WriteString("/" + r.Subresource)
	}
	if r.Namespace != "" || r.Name != "" {
		s.WriteString(" " + types.NamespacedName{Namespace: r.Namespace, Name: r.Name}.String())
	}
	return s.String()
}

// Effect is what has become of a write.
type Effect string

const (
	// Pending: no answer yet.
	Pending Effect = "pending"
	// Stored: the object is stored at the version of the Write.
	Stored Effect = "stored"
	// Unchanged: the object was as wanted; the version is one that was there before. What is called Stored may be that, too:
	// it is told only where the request named the version, or an earlier write in the same ledger made it.
	Unchanged Effect = "unchanged"
	// Deleting: a delete has marked the object; it is still there, at the version of the Write, until its finalizers or its
	// grace period are gone.
	Deleting Effect = "deleting"
	// Gone: the object is deleted, by a delete or by an update that has taken the last finalizer from it. The version, if
	// there is one, is that of the answer: of the deletion itself, or of the object before it.
	Gone Effect = "gone"
	// Accepted: the API server has done what was asked for; the answer does not tell what, or was not read. Unknown says
	// why.
	Accepted Effect = "accepted"
	// Uncertain: the request may or may not have been carried out: the connection broke, or the answer is a 5xx.
	Uncertain Effect = "uncertain"
)

// Write is a request that has changed an object, or may have. What the API server refused (3xx, 4xx, 501), what was never
// sent and dry runs are none.
type Write struct {
	Request

	// UID and ResourceVersion are the object's, as the API server said. A version is text: those of an API server of one's own
	// need not be numbers. Either may be empty; Unknown then says why. The items of a deletecollection are a Write each,
	// with the name, and have no version.
	UID             types.UID
	ResourceVersion string
	// Generation is metadata.generation, 0 if unknown.
	Generation int64
	// Effect is what has become of it.
	Effect Effect
	// Unknown is why UID, ResourceVersion or Effect cannot be told; else empty.
	Unknown string
	// Object is the object as answered, if [Origin].Decode asks for it: typed if the scheme knows its kind, else, if it is JSON,
	// unstructured; a PartialObjectMetadata if that was asked for. Nil if it cannot be decoded, is larger than 1 MiB, was not read
	// to its end, or if the answer is something else, such as a Scale or a Table. It is shared: do not change it.
	Object runtime.Object
	// Salt is set where hashes stand for what identifies the object: see [Write.Hashed].
	Salt Salt
}

func (r *Request) event(controller, unknown string) hook.APIRequest {
	return hook.APIRequest{
		Controller: controller, Verb: r.Verb, Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: r.Subresource,
		DryRun: r.DryRun, Status: r.Status, Took: r.Took, Err: r.Err, Unknown: unknown,
	}
}

// mutates says whether the request can change what a resource stores. Requests for these subresources go through to something
// else, or make a token that is not kept.
func (r *Request) mutates() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return false
	}
	if r.Group != "" {
		return r.Resource != ""
	}
	switch r.Resource + "/" + r.Subresource {
	case "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy", "serviceaccounts/token":
		return false
	}
	return r.Resource != ""
}
