// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

func (a *API) watch(r *request.Request, t *store.Table) (*http.Response, error) {
	o, where, err := selectionOf(r, t)
	if err != nil {
		return nil, err
	}
	contentType := runtime.ContentTypeJSON
	switch {
	case r.Form.Media == runtime.ContentTypeYAML:
		return nil, request.NotAcceptable("only the following media types are accepted: %s, %s", wire.StreamTypes[0], wire.StreamTypes[1])
	case r.Form.Protobuf():
		contentType = r.Form.Media + ";stream=watch"
	}
	from, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	w := a.open(r, where)
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		timeout := time.Duration(*o.TimeoutSeconds) * time.Second
		w.timeout, w.end = time.After(timeout), time.Now().Add(timeout)
	}
	if o.AllowWatchBookmarks {
		w.idle = w.untilBookmark()
	}
	if err := a.position(w, o, from); err != nil {
		w.fail(err)
	}
	return r.Stream(http.StatusOK, contentType, w), nil
}

func (a *API) open(r *request.Request, where *selection) *stream {
	w := &stream{
		api: a, request: r, table: where.table, where: where,
		closed: make(chan struct{}), cut: a.store.Cut, next: where.table.End(),
	}
	a.Watches++
	w.close = sync.OnceFunc(func() {
		close(w.closed)
		a.store.Lock()
		defer a.store.Unlock()
		a.Watches--
	})
	return w
}

// position decides what a watch sends first.
func (a *API) position(w *stream, o *internalversion.ListOptions, from int64) error {
	t := w.table
	switch {
	case o.SendInitialEvents != nil && *o.SendInitialEvents:
		if from > a.store.Version {
			return a.tooLarge(from, 1)
		}
		for _, k := range store.Within(t.Keys, w.where.prefix(), "") {
			if w.where.matches(t.Objects[k]) {
				w.initial = append(w.initial, t.Objects[k])
			}
		}
		w.start, w.mark = a.store.Version, o.AllowWatchBookmarks
	case from == 0: // from now on
	case from < t.Oldest:
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, t.Oldest))
	default:
		w.start = from // which may be a future one
		w.next = t.After(from)
	}
	return nil
}
