// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

type page struct {
	items    []*unstructured.Unstructured
	current  bool // the items are the stored objects
	metadata metav1.ListMeta
}

func (a *API) list(r *request.Request, t *store.Table) (*http.Response, error) {
	o, where, err := selectionOf(r, t)
	if err != nil {
		return nil, err
	}
	p, err := a.page(o, where)
	if err != nil {
		return nil, err
	}
	if err := a.converter.Show(&r.Answers, t, p.items...); err != nil {
		return nil, err
	}
	return answerPage(r, t, p)
}

// parseVersion reads a resourceVersion parameter; "" is 0.
func parseVersion(version string) (int64, error) {
	if version == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0, field.Invalid(field.NewPath("resourceVersion"), version, err.Error())
	}
	return int64(min(v, 1<<63-1)), nil //nolint:gosec // it fits
}

// point is where a page begins.
type point struct {
	exact   int64 // the version to list; 0 is the newest one
	start   string
	minimum int64 // a newest version below it is too old
}

// begin decides which version a list shows, and from which path on.
func begin(o *internalversion.ListOptions, single bool) (point, error) {
	if o.Continue != "" {
		exact, start, err := decodeContinue(o.Continue)
		if err != nil {
			return point{}, apierrors.NewBadRequest("invalid continue token: " + err.Error())
		}
		if o.ResourceVersion != "" && o.ResourceVersion != "0" {
			return point{}, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		if single {
			return point{}, nil
		}
		return point{exact: max(exact, 0), start: start}, nil
	}
	v, err := parseVersion(o.ResourceVersion)
	switch {
	case err != nil:
		return point{}, apierrors.NewBadRequest("invalid resource version: " + err.Error())
	case o.ResourceVersionMatch == metav1.ResourceVersionMatchExact,
		o.ResourceVersionMatch == "" && o.Limit > 0 && v > 0 && !single:
		return point{exact: v}, nil
	}
	return point{minimum: v}, nil
}

func (a *API) page(o *internalversion.ListOptions, where *selection) (page, error) {
	t := where.table
	_, single := where.single()
	single = single && t.Namespaced == (where.prefix() != "")
	from, err := begin(o, single)
	if err != nil {
		return page{}, err
	}
	keys, objects, version := t.Keys, t.Objects, a.store.Version
	switch retry := 1; {
	case max(from.exact, from.minimum) > a.store.Version:
		if single && from.exact > 0 {
			retry = 0
		}
		return page{}, a.tooLarge(max(from.exact, from.minimum), retry)
	case from.exact > 0 && from.exact < t.Expired:
		return page{}, expired(o, from.start)
	case from.exact > 0:
		keys, objects = t.At(from.exact)
		version = from.exact
	}
	keys = store.Within(keys, where.prefix(), from.start)
	limit := o.Limit
	if o.ResourceVersion == "0" || limit < 0 {
		limit = 0
	}
	p := page{current: version == a.store.Version, metadata: metav1.ListMeta{ResourceVersion: strconv.FormatInt(version, 10)}}
	for i, k := range keys {
		if where.matches(objects[k]) {
			p.items = append(p.items, objects[k])
		}
		if limit == 0 || int64(len(p.items)) < limit {
			continue
		}
		if i < len(keys)-1 {
			p.metadata.Continue = encodeContinue(version, k.Below(where.prefix())+"\x00")
			if rest := int64(len(keys)) - limit; where.empty() {
				p.metadata.RemainingItemCount = &rest
			}
		}
		break
	}
	return p, nil
}

// expired is the error of a list of a version that the history does not have anymore.
func expired(o *internalversion.ListOptions, start string) error {
	if o.Continue == "" {
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response to retrieve " +
		"the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that " +
		"were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	err.ErrStatus.Continue = encodeContinue(-1, start)
	return err
}

// tooLarge is the error of a request for a future version.
func (a *API) tooLarge(version int64, retry int) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", version, a.store.Version), retry)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

func answerPage(r *request.Request, t *store.Table, p page) (*http.Response, error) {
	of := metav1.TypeMeta{APIVersion: t.GV().String(), Kind: t.Kind + "List"}
	switch r.Form.Convert.Kind {
	case wire.AsTable:
		return r.AnswerTable(http.StatusOK, p.items, p.metadata)
	case wire.PartialMetadata:
		return nil, request.NotAcceptable("you requested PartialObjectMetadata, but the requested object is a list (%s)", t.GoType("List"))
	case wire.PartialMetadataList:
		of = metav1.TypeMeta{APIVersion: r.Form.Convert.GroupVersion().String(), Kind: wire.PartialMetadataList}
	}
	items := make([][]byte, len(p.items))
	for i, o := range p.items {
		var err error
		if items[i], err = t.Encode(o, r.Form, p.current); err != nil {
			return r.Fail(http.StatusInternalServerError, err.Error())
		}
	}
	if r.Form.Protobuf() {
		return answerMessages(r, of, p.metadata, items)
	}
	data, err := listJSON(t, of, p.metadata, items, r.Form)
	if err != nil {
		return nil, err
	}
	return r.AnswerJSON(http.StatusOK, data)
}

// listJSON joins encoded items. The items of a built-in kind have no type, as in the real server.
func listJSON(t *store.Table, of metav1.TypeMeta, metadata metav1.ListMeta, items [][]byte, f wire.Form) ([]byte, error) {
	var meta any = metadata
	prefix := ""
	switch {
	case t.BuiltIn && f.Convert.Empty():
		prefix = t.TypePrefix()
	case f.Convert.Empty(): // custom lists always have a continue
		custom := map[string]any{"resourceVersion": metadata.ResourceVersion, "continue": metadata.Continue}
		if metadata.RemainingItemCount != nil {
			custom["remainingItemCount"] = *metadata.RemainingItemCount
		}
		meta = custom
	}
	head, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	size := len(head) + 100
	for _, item := range items {
		size += len(item) + 1
	}
	b.Grow(size)
	fmt.Fprintf(&b, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, of.Kind, of.APIVersion, head)
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		if prefix != "" {
			b.WriteByte('{')
			item = item[len(prefix):]
		}
		b.Write(item)
	}
	b.WriteString("]}")
	return b.Bytes(), nil
}

// answerMessages answers with a list in protobuf: every list has its metadata in field 1 and its
// items in field 2.
func answerMessages(r *request.Request, of metav1.TypeMeta, metadata metav1.ListMeta, items [][]byte) (*http.Response, error) {
	head, err := metadata.Marshal()
	if err != nil {
		return nil, err
	}
	raw := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), head)
	for _, item := range items {
		inner, err := wire.Message(item)
		if err != nil {
			return nil, err
		}
		raw = protowire.AppendBytes(protowire.AppendTag(raw, 2, protowire.BytesType), inner)
	}
	return r.Respond(http.StatusOK, r.Form.Media, wire.Envelope(of, raw)), nil
}
