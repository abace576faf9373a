// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"mime"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/wire"
	"github.com/setpoint-dev/setpoint/ledger"
)

// judge records the effect of a write from a 2xx response. obj aliases a buffer, so judge copies.
func judge(w *ledger.Write, obj *wire.Metadata) {
	switch {
	case obj.IsStatus():
		judgeStatus(w, obj)
	case w.Name != "" && string(obj.Name) != w.Name:
		w.Unknown = "the answer is about something else"
	case len(obj.UID) == 0 || len(obj.ResourceVersion) == 0:
		identify(w, obj)
		w.Unknown = "the answer has no uid or no resourceVersion"
	default:
		identify(w, obj)
		w.Effect, w.Unknown = effect(w, obj)
	}
}

func judgeStatus(w *ledger.Write, obj *wire.Metadata) {
	if w.Verb != "delete" || w.Subresource != "" || w.Status != http.StatusOK || string(obj.Status) != "Success" {
		w.Unknown = "the answer is a Status, which does not report the state of the object"
		return
	}
	w.Effect, w.Unknown, w.UID = ledger.Gone, "", types.UID(obj.StatusUID)
	if w.UID == "" {
		w.Unknown = "the answer does not name the uid"
	}
}

// identify copies an object's identity in one allocation.
func identify(w *ledger.Write, obj *wire.Metadata) {
	var room [256]byte
	u, v := len(obj.UID), len(obj.ResourceVersion)
	all := append(append(room[:0], obj.UID...), obj.ResourceVersion...)
	if w.Name == "" {
		all = append(all, obj.Name...)
	}
	ids := string(all)
	w.UID, w.ResourceVersion, w.Generation = types.UID(ids[:u]), ids[u:u+v], obj.Generation
	if w.Name == "" {
		w.Name = ids[u+v:]
	}
}

func effect(w *ledger.Write, obj *wire.Metadata) (effect ledger.Effect, unknown string) {
	// The API server, too, deletes a marked object without finalizers and grace period in an
	// update.
	unheld := obj.Deleting && !obj.Finalizers && obj.Grace == 0
	isNamespace := w.Group == "" && w.Resource == "namespaces"
	switch deletes := w.Verb == "delete"; {
	case w.Verb == "create":
		return ledger.Stored, ""
	case deletes && w.Subresource != "":
		return ledger.Accepted, "what deleting a subresource means is not known"
	case unheld && isNamespace && w.Subresource == "finalize":
		return ledger.Accepted, "a namespace may have finalizers in its spec"
	case unheld && !isNamespace:
		return ledger.Gone, ""
	case deletes && obj.Deleting:
		return ledger.Deleting, ""
	case deletes && obj.Finalizers:
		return ledger.Accepted, "the answer is an object with finalizers that is not marked as deleted"
	case deletes:
		return ledger.Gone, ""
	}
	return ledger.Stored, ""
}

// answersObject reports whether the response is the object. Many subresources have kinds of their
// own.
func answersObject(r *ledger.Request) bool {
	switch r.Subresource {
	case "", "status", "finalize", "approval", "ephemeralcontainers", "resize":
		return true
	}
	return false
}

// wanted reports whether the ledger wants a response's object.
func wanted(l *journal.Journal, r *ledger.Request) bool {
	o := l.Origin().Owner
	return o != nil && answersObject(r) && r.Verb != "deletecollection" && o.Decodes(schema.GroupResource{Group: r.Group, Resource: r.Resource})
}

func decode(codecs serializer.CodecFactory, f wire.Format, contentType string, data []byte, kind string) runtime.Object {
	var into runtime.Object // nil: the scheme decides
	switch kind {
	case "Table":
		return nil
	case "PartialObjectMetadata":
		into = &metav1.PartialObjectMetadata{}
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil
	}
	if info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType); ok {
		if obj, _, err := info.Serializer.Decode(data, nil, into); err == nil && isStored(obj) {
			return obj
		}
	}
	if f == wire.JSON {
		if obj, _, err := unstructured.UnstructuredJSONScheme.Decode(data, nil, nil); err == nil && isStored(obj) {
			return obj
		}
	}
	return nil
}

func isStored(obj runtime.Object) bool {
	o, ok := obj.(metav1.Object)
	return ok && o.GetUID() != ""
}
