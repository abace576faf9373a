// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/listwatch"
)

// verdict is whether an informer shows what was written.
type verdict uint8

const (
	shown   verdict = iota
	behind          // it will, perhaps only once the informer has recovered
	unclear         // it cannot be told, or the informer does not run
)

// shows reports whether the informer shows what was written, and if that is unclear, why.
func (i *informer) shows(w *Written, s *Scope) (verdict, error) {
	synced := i.hasSynced() // no read is answered before the first list is complete
	at := i.shared.GetStore().LastStoreSyncResourceVersion()
	if synced && !w.Gone && !w.Marked && past(at, w.ResourceVersion) { // by far the most frequent
		return shown, nil
	}
	v, why := i.judge(w, s, at)
	if v == shown && synced {
		return shown, nil
	}
	switch phase, _, _ := i.at(); phase {
	case hook.Synced, hook.Syncing:
		if v == shown {
			v = behind
		}
		return v, why
	case hook.Failing, hook.Waiting:
		return behind, nil // even what is unclear now may be clear after the relist
	default:
		return unclear, fmt.Errorf("%s does not run and cannot show the write of %s: %s", i.key.kind(), w.String(), i.state())
	}
}

// judge is shows for an informer that has synced and follows the API server.
func (i *informer) judge(w *Written, s *Scope, at string) (verdict, error) {
	for _, version := range [...]string{at, w.ResourceVersion} {
		if version != "" && !number(version) {
			return i.judgeByName(w, version)
		}
	}
	stored := i.stored(w)
	if w.Gone || w.Marked {
		return i.judgeEnd(w, s, at, stored)
	}
	switch {
	case w.ResourceVersion == "":
		reason := cmp.Or(w.Unknown, "its version is not known")
		return unclear, fmt.Errorf("nobody can tell whether %s shows the write of %s: %s", i.key.kind(), w.String(), reason)
	case stored == nil && s.excludes(w, i.key):
		return shown, nil
	case stored == nil:
		return behind, nil
	case past(stored.GetResourceVersion(), w.ResourceVersion):
		return shown, nil // another UID and a newer version is what came after it
	default:
		return behind, nil
	}
}

// judgeEnd is judge for what is gone, or perhaps only marked.
func (i *informer) judgeEnd(w *Written, s *Scope, at string, stored Object) (verdict, error) {
	switch {
	case stored != nil && w.is(stored):
		if w.Marked && stored.GetDeletionTimestamp() != nil {
			return shown, nil
		}
		if err := i.undecodable(listwatch.NameOf(stored)); w.Marked && err != nil {
			return unclear, fmt.Errorf("%s cannot show that %s is marked for deletion: %w", i.key.kind(), w.String(), err)
		}
		return behind, nil
	case w.ResourceVersion == "", at == "", past(at, w.ResourceVersion), s.excludes(w, i.key):
		return shown, nil
	default:
		return behind, nil // it may not have come yet
	}
}

// judgeByName is judge where a version is not a number.
func (i *informer) judgeByName(w *Written, version string) (verdict, error) {
	stored := i.stored(w)
	there := stored != nil && w.is(stored)
	switch {
	case !w.Gone && !w.Marked && there && stored.GetResourceVersion() == w.ResourceVersion:
		return shown, nil
	case w.Marked && there && stored.GetDeletionTimestamp() != nil:
		return shown, nil
	case (w.Gone || w.Marked) && w.ResourceVersion == "" && !there:
		return shown, nil
	}
	return unclear, fmt.Errorf("nobody can tell whether %s shows the write of %s: the version %q is not a number", i.key.kind(), w.String(), version)
}

// stored returns what the store has at the name, or nil.
func (i *informer) stored(w *Written) Object {
	at := w.at()
	obj, found, err := i.shared.GetStore().GetByKey(storeKey(types.NamespacedName{Namespace: at.namespace, Name: at.name}))
	if err != nil || !found {
		return nil
	}
	o, _ := obj.(Object)
	return o
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
