// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
)

// history records what happened in one run, to each lamp and to the API server.
type history struct {
	began time.Time

	mu     sync.Mutex // guards what follows
	events map[string][]happened
}

type happened struct {
	at   time.Time
	what string
}

// The history keeps events that concern all lamps under this name.
const everybody = ""

func newHistory() *history { return &history{began: time.Now(), events: map[string][]happened{}} }

func (h *history) add(name string, at time.Time, what []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events[name] = append(h.events[name], happened{at, terse(strings.Join(what, "; "))})
}

// terse shortens repeated parts of request errors.
func terse(text string) string {
	text = addresses.ReplaceAllString(text, "")
	return strings.NewReplacer("\n", " | ", ".scenario.setpoint.dev", "").Replace(text)
}

var addresses = regexp.MustCompile(`"https://[^"]*"|(read|dial) tcp [^ ]* |\(namespace [^)]*\)`)

func (h *history) note(name, format string, args ...any) {
	h.add(name, time.Now(), []string{fmt.Sprintf(format, args...)})
}

// of returns the history of a lamp, and the outages.
func (h *history) of(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Concat(h.events[everybody], h.events[name])
	slices.SortStableFunc(all, func(a, b happened) int { return a.at.Compare(b.at) })
	var text strings.Builder
	for _, e := range all {
		fmt.Fprintf(&text, "      %8.3f %s\n", e.at.Sub(h.began).Seconds(), e.what)
	}
	return text.String()
}

// lastLamp returns the lamp of the last Reconcile.
func (l *lane) lastLamp() (name string) {
	l.history.mu.Lock()
	defer l.history.mu.Unlock()
	var last time.Time
	for lamp, events := range l.history.events {
		if at := events[len(events)-1].at; lamp != everybody && at.After(last) {
			last, name = at, lamp
		}
	}
	return name
}

// did records a write of the operator and its result.
func (o *outageOperator) did(t *trace, resource, verb string, obj metav1.Object, err error) {
	if err != nil {
		t.note("%s %s: %v", verb, resource, err)
		if why, ok := lostAnswer(err); ok {
			o.uncertain.Add(1)
			o.remember(t.key, ownWrite{resource: resource, uncertain: verb + ": " + why})
		}
		return
	}
	t.note("%s %s -> %s %s v%s", verb, resource, obj.GetName(), short(obj.GetUID()), obj.GetResourceVersion())
	o.remember(t.key, ownWrite{
		resource: resource, name: types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()},
		uid: obj.GetUID(), version: obj.GetResourceVersion(), gone: verb == "end",
	})
}

// lostAnswer reports whether a request may have been executed although its answer was lost.
func lostAnswer(err error) (string, bool) {
	var status apierrors.APIStatus
	var transport *url.Error
	switch {
	case errors.As(err, &status):
		return "", false
	case errors.As(err, &transport) && !strings.Contains(err.Error(), "connection refused"):
		return transport.Err.Error(), true
	}
	return "", false
}

func (o *outageOperator) remember(key types.NamespacedName, w ownWrite) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wrote[key] == nil {
		o.wrote[key] = map[string]ownWrite{}
	}
	o.wrote[key][w.resource] = w
}

// compareWithWrites counts the Reconciles that start before a cache shows their key's previous
// writes.
func (o *outageOperator) compareWithWrites(ctx context.Context, t *trace) {
	o.mu.Lock()
	writes := o.wrote[t.key]
	delete(o.wrote, t.key)
	o.mu.Unlock()
	missing := 0
	for _, w := range writes {
		if w.uncertain != "" {
			t.note("start: lost answer %s %s", w.resource, w.uncertain)
			continue
		}
		var why string
		switch w.resource {
		case "lamps":
			why = unseen(ctx, o.lamps, w)
		case "configmaps":
			why = unseen(ctx, o.maps, w)
		case "secrets":
			why = unseen(ctx, o.secrets, w)
		case "serviceaccounts":
			why = unseen(ctx, o.accounts, w)
		}
		if why != "" {
			missing++
			t.note("start: UNSEEN %s %s v%s: %s", w.resource, w.name.Name, w.version, why)
			o.remember(t.key, w)
		}
	}
	if missing > 0 {
		o.unseen.Add(1)
	}
}

// unseen returns why a cache does not show a write, or "".
func unseen[T cache.Object](ctx context.Context, h *cache.Handle[T], w ownWrite) string {
	obj, err := h.Get(ctx, w.name)
	switch {
	case w.gone && err == nil && obj.GetUID() == w.uid:
		return "it is there"
	case w.gone || err != nil && !apierrors.IsNotFound(err):
		return ""
	case err != nil:
		return shownLater(h, w)
	case number(obj.GetResourceVersion()) < number(w.version):
		return "it is at v" + obj.GetResourceVersion()
	}
	return ""
}

// shownLater accepts an object that another client has deleted since: the store is past it then.
func shownLater[T cache.Object](h *cache.Handle[T], w ownWrite) string {
	if number(h.State().ResourceVersion) > number(w.version) {
		return ""
	}
	return "it is not there"
}

func number(version string) int {
	n, _ := strconv.Atoi(version)
	return n
}
