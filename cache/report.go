// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/object"
)

func (g *group) state(sized bool) hook.InformerState {
	members := g.members.Load().by
	all := hook.InformerState{Kind: g.key.kind(), Scope: g.describe(), Selection: g.key.selection(), Phase: hook.Synced}
	if g.key.foreign == nil {
		all.Storage = g.key.storage.String()
	}
	if err := g.mistake(); err != nil {
		all.Phase, all.Err, all.Since = hook.Failing, err, time.Now()
	}
	for _, i := range members {
		s := i.state()
		if sized {
			s.Objects, s.Bytes = size(i.Store())
		}
		if len(members) == 1 && all.Err == nil {
			return s
		}
		all = merge(all, s)
	}
	return all
}

// notCurrent describes informers. Of their errors it wraps only a no-match error: the 404 of a list
// must not pass for an object that does not exist.
type notCurrent struct {
	text     string
	unserved error // or nil
}

func (n *notCurrent) Error() string { return n.text }

func (n *notCurrent) Unwrap() error { return n.unserved }

func reason(s hook.InformerState) error { return &notCurrent{s.String(), noMatch(s.Err)} }

func noMatch(err error) error {
	if meta.IsNoMatchError(err) {
		return err
	}
	return nil
}

func (g *group) String() string {
	if scope := g.describe(); scope != "" {
		return g.key.kind() + " (" + scope + ")"
	}
	return g.key.kind()
}

func (g *group) mistake() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wrong
}

// describe is empty for all objects in the usual form.
func (g *group) describe() string {
	words := g.key.String()
	add := func(text string) { words = strings.TrimPrefix(words+", "+text, ", ") }
	switch s := g.scope; {
	case selectsNothing(s.Labels) || selectsNothing(s.Fields):
		add("nothing")
	case s.inherited && g.members.Load().kind.clusterScoped:
	case s.Namespaces != nil:
		add(list("namespace", s.Namespaces.Elements()))
	case s.Names != nil:
		var names []string
		for _, name := range s.Names.Elements() {
			names = append(names, object.Name(name))
		}
		add(list("name", names))
	}
	return words
}

func list(what string, names []string) string {
	slices.Sort(names)
	switch {
	case len(names) == 1:
		return what + " " + names[0]
	case len(names) < 4 && len(names) > 0:
		return what + "s " + strings.Join(names, " ")
	default:
		return fmt.Sprintf("%d %ss", len(names), what)
	}
}

func merge(all, s hook.InformerState) hook.InformerState {
	if worse(s.Phase) > worse(all.Phase) || all.Since.IsZero() {
		all.Phase, all.Err, all.Since = s.Phase, s.Err, s.Since
		if s.Err != nil {
			all.Err = fmt.Errorf("%s: %w", s.Scope, s.Err)
		}
	}
	all.Lists, all.Watches, all.Quiet = all.Lists+s.Lists, all.Watches+s.Watches, all.Quiet+s.Quiet
	all.Broken = append(all.Broken, s.Broken...)
	all.Broken = all.Broken[:min(len(all.Broken), 10)]
	all.BrokenCount += s.BrokenCount
	all.Objects, all.Bytes, all.Decodes = all.Objects+s.Objects, all.Bytes+s.Bytes, all.Decodes+s.Decodes
	return all
}

func worse(p hook.Phase) int {
	return slices.Index([]hook.Phase{hook.Synced, hook.Syncing, hook.NotStarted, hook.Waiting, hook.Failing, hook.Stopped}, p)
}
