// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/shard"
)

const (
	namespace = "default"
	lease     = "sites" // the Lease of the group, or of one leader
)

// history watches the parts and the Leases from their beginning, and knows each version of them.
type history struct {
	mu       sync.Mutex // guards what follows
	news     chan struct{}
	judge    *judge
	parts    map[string]write  // the newest
	versions map[string]uint64 // the newest, by resource
	holders  map[string]string // of members' Leases, by life
	leader   life              // of the Lease of one leader
	asked    map[string]asked  // by site
}

type asked struct {
	text   int
	served chan struct{}
}

func newHistory() *history {
	return &history{
		news: make(chan struct{}), judge: newJudge(), parts: map[string]write{}, versions: map[string]uint64{},
		holders: map[string]string{}, asked: map[string]asked{},
	}
}

// restFor returns a client of a group version.
func restFor(cfg *rest.Config, of schema.GroupVersion) (*rest.RESTClient, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath, cfg.GroupVersion = "/apis", &of
	if of.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.RESTClientFor(cfg)
}

// watch records what happens to a resource after a version, until ctx ends. It goes on after the
// end of a stream, and loses nothing.
func (h *history) watch(ctx context.Context, c *rest.RESTClient, resource, version string) error {
	for ctx.Err() == nil {
		o := metav1.ListOptions{Watch: true, ResourceVersion: version, AllowWatchBookmarks: true}
		w, err := c.Get().Namespace(namespace).Resource(resource).VersionedParams(&o, scheme.ParameterCodec).Watch(ctx)
		if err != nil {
			return fmt.Errorf("watch %s: %w", resource, err)
		}
		for event := range w.ResultChan() {
			if event.Type == watch.Error {
				return fmt.Errorf("watch %s: %w", resource, apierrors.FromObject(event.Object))
			}
			m, ok := event.Object.(metav1.Object)
			if !ok {
				return fmt.Errorf("watch %s: an event with a %T", resource, event.Object)
			}
			version = m.GetResourceVersion()
			if err := h.saw(resource, event); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *history) saw(resource string, event watch.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := event.Object.(metav1.Object) //nolint:forcetypeassert // watch has checked it
	h.versions[resource] = number(m.GetResourceVersion())
	defer h.newsLocked()
	switch {
	case event.Type == watch.Deleted && resource == "leases" && m.GetName() == lease:
		h.lostLocked(m.GetResourceVersion())
		return nil
	case event.Type == watch.Bookmark || event.Type == watch.Deleted:
		return nil
	}
	switch o := event.Object.(type) {
	case *corev1.ConfigMap:
		h.partLocked(o)
	case *coordinationv1.Lease:
		return h.leaseLocked(o)
	}
	return nil
}

func (h *history) newsLocked() {
	close(h.news)
	h.news = make(chan struct{})
}

func (h *history) partLocked(o *corev1.ConfigMap) {
	site, _, isPart := strings.Cut(o.Name, ".")
	if !isPart || o.Data["by"] == "" {
		return
	}
	text, _ := strconv.Atoi(o.Data["text"])
	w := write{
		life: life{o.Data["by"], o.Data["term"]}, version: number(o.ResourceVersion),
		site: site, part: o.Name, text: text, saw: number(o.Data["saw"]), at: time.Now(),
	}
	h.judge.writes = append(h.judge.writes, w)
	h.parts[w.part] = w
	if a, ok := h.asked[site]; ok && h.parts[site+".page"].text >= a.text && h.parts[site+".feed"].text >= a.text {
		delete(h.asked, site)
		close(a.served)
	}
}

func (h *history) leaseLocked(o *coordinationv1.Lease) error {
	text, sharded := o.Annotations[shard.SlotsAnnotation]
	switch {
	case o.Name != lease:
		h.holders[o.Name+"@"+o.ResourceVersion] = holderOf(o)
	case sharded:
		return h.assignmentLocked(o, text)
	case holderOf(o) != h.leader.by:
		h.leader = life{holderOf(o), o.ResourceVersion}
		if h.leader.by == "" {
			h.leader = life{}
		}
		r := record{version: number(o.ResourceVersion), members: 1, at: time.Now()}
		for i := range r.owner {
			r.owner[i] = h.leader
		}
		h.judge.recorded(r)
	}
	return nil
}

func (h *history) assignmentLocked(o *coordinationv1.Lease, text string) error {
	version := number(o.ResourceVersion)
	a, ok := readAssignment(text)
	if !ok {
		h.lostLocked(o.ResourceVersion)
		return nil
	}
	r := record{version: version, members: len(a.Members), at: time.Now()}
	for _, left := range a.Handovers {
		r.handedOver += len(left.Written)
	}
	was := h.newestLocked()
	recovering := !a.Listed || len(a.Waiting) > 0
	r.lost = recovering
	for i, s := range a.Slots {
		if s.Owner == nil || s.To != nil {
			r.moving++
			if s.To != nil {
				r.to[i] = h.holders[a.Members[*s.To].String()]
			}
			if s.Ready {
				r.to[i] += ", which is ready"
			}
		}
		if s.Owner != nil {
			owner := a.Members[*s.Owner]
			r.owner[i] = life{h.holders[owner.String()], strconv.FormatUint(owner.Term, 10)}
		} else if recovering {
			r.owner[i] = was.owner[i]
		}
	}
	h.judge.recorded(r)
	return nil
}

// lostLocked records that there is no valid assignment. The owners may work until each of them has
// acknowledged the next one.
func (h *history) lostLocked(version string) {
	r := h.newestLocked()
	if r.members == 0 {
		return
	}
	r.version, r.moving, r.at, r.to, r.lost = number(version), len(r.owner), time.Now(), [256]string{}, true
	h.judge.lost = append(h.judge.lost, r.version)
	h.judge.recorded(r)
}

func holderOf(o *coordinationv1.Lease) string {
	if o.Spec.HolderIdentity == nil {
		return ""
	}
	return *o.Spec.HolderIdentity
}

func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64) // 0 if it is empty
	return n
}

// wait returns when ready returns true. It calls it after each event.
func (h *history) wait(ctx context.Context, what string, ready func() bool) error {
	for {
		h.mu.Lock()
		is, news := ready(), h.news
		h.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// ask returns a channel that is closed when both parts of a site have a text.
func (h *history) ask(site string, text int) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := asked{text, make(chan struct{})}
	h.asked[site] = a
	return a.served
}

// movedLocked reports whether a site's slot moved while the site waited, or up to a second before.
func (h *history) movedLocked(site string, from, until time.Time) bool {
	slot := slotOf(site)
	for i, r := range h.judge.records {
		if i > 0 && r.owner[slot] != h.judge.records[i-1].owner[slot] && r.at.After(from.Add(-time.Second)) && r.at.Before(until) {
			return true
		}
	}
	return false
}

// storyLocked describes what happened to a site in a time.
func (h *history) storyLocked(site string, from, until time.Time) string {
	type event struct {
		at   time.Time
		what string
	}
	var all []event
	was, slot := "", slotOf(site)
	for _, r := range h.judge.records {
		is := fmt.Sprintf("slot %d belongs to %q", slot, r.owner[slot].by)
		if r.to[slot] != "" {
			is += ", moves to " + r.to[slot]
		}
		if is != was {
			all = append(all, event{r.at, is})
		}
		was = is
	}
	for _, w := range h.judge.writes {
		if w.site == site {
			all = append(all, event{w.at, fmt.Sprintf("%s writes %s, %d", w.by, w.part, w.text)})
		}
	}
	slices.SortFunc(all, func(a, b event) int { return a.at.Compare(b.at) })
	s := fmt.Sprintf("%s waited from 0 to %.3f s", site, until.Sub(from).Seconds())
	for _, e := range all {
		if e.at.After(from.Add(-until.Sub(from))) && !e.at.After(until) {
			s += fmt.Sprintf("\n%7.3f s: %s", e.at.Sub(from).Seconds(), e.what)
		}
	}
	return s
}

// newest returns the newest record.
func (h *history) newestLocked() (r record) {
	if n := len(h.judge.records); n > 0 {
		r = h.judge.records[n-1]
	}
	return r
}

// settleLocked judges all that both watches have shown.
func (h *history) settleLocked() {
	h.judge.settle(min(h.versions["configmaps"], h.versions["leases"]) + 1)
}
