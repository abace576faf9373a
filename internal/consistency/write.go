// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
)

// Object is what a store keeps.
type Object interface {
	metav1.Object
	runtime.Object
}

// Write is a state of an object that was written, as the API server has answered.
type Write struct {
	// Host is where the request went to, such as https://10.0.0.1:6443, with the path that a proxy in
	// front of several API servers adds before /api and /apis. Empty is any.
	Host string
	// Resource is what was written. Events of the core API and of events.k8s.io are the same.
	Resource schema.GroupResource
	// Namespace and Name of the object. The namespace of a cluster-scoped object is empty.
	Namespace, Name string
	// UID is the object's. Empty is not known: any object of that name is taken for it.
	UID types.UID
	// ResourceVersion is the one that the write has made, or the last one known before it. Empty is not
	// known, which suffices only for a write that is Gone or Marked.
	ResourceVersion string
	// Gone reports that the object was deleted. A store shows that when it has no object with that UID at
	// that name, and is past ResourceVersion, if there is one.
	Gone bool
	// Marked reports that the object was deleted or marked for deletion; which of both, and at which
	// version, is not known (a deletecollection, an eviction). A store shows that when it has no such
	// object, or one that is marked.
	Marked bool
	// Unknown describes what is not known of the write, such as "there was no answer". It is part of the
	// error if there is neither a ResourceVersion nor Gone or Marked. Default: none.
	Unknown string
	// Subresource is the subresource that was written, which may not have the object's labels.
	Subresource string
	// Object is the answer, for selectors: the object, or its metadata. Default: not known.
	Object runtime.Object
	// Hashed is set if Namespace, Name, UID, and the keys and values of Object's labels are hashes that
	// it has made. Object then has nothing but labels. See Locate. Default: they are clear.
	Hashed Hasher

	found types.NamespacedName // what Locate has found, of a hashed write
}

// At returns where a store may have the object.
func (w *Write) At() types.NamespacedName {
	if w.Hashed != nil {
		return w.found
	}
	return types.NamespacedName{Namespace: w.Namespace, Name: w.Name}
}

// String names the object as in client-go's stores, if that is known.
func (w *Write) String() string {
	if w.Hashed != nil && w.found == (types.NamespacedName{}) {
		return "an object of which only the hash is known (" + w.Name + ")"
	}
	return storeKey(w.At())
}

// is reports whether the object is the one that was written, as far as the UID tells.
func (w *Write) is(o Object) bool {
	if w.UID == "" || o.GetUID() == w.UID {
		return true
	}
	return w.Hashed != nil && w.Hashed.Hash("uid", string(o.GetUID())) == string(w.UID)
}

// In reports whether a namespace, or the place of a single object, contains the object.
func (w *Write) In(p types.NamespacedName) bool {
	switch {
	case w.Hashed == nil:
		return p.Namespace == w.Namespace && (p.Name == "" || p.Name == w.Name)
	case p.Name != "":
		return w.Hashed.Hash("name", storeKey(p)) == w.Name
	default:
		return w.Hashed.Hash("namespace", p.Namespace) == w.Namespace
	}
}

// storeKey is how client-go's store names an object.
func storeKey(name types.NamespacedName) string { return toolscache.ObjectName(name).String() }

// Hasher hashes text of one sort: "namespace", "name" (namespace/name, or the name of a
// cluster-scoped object), "uid", "label" (a key) or "value" (key=value). The hash of the empty text
// is empty. Two Hashers are equal, as == compares them, if their hashes are.
type Hasher interface {
	Hash(sort, text string) string
}

// past says whether version a is b or a later one. It is false of what is not a number.
func past(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c >= 0
}

func number(version string) bool {
	_, err := resourceversion.CompareResourceVersion(version, version)
	return err == nil
}
