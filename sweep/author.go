// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/apipath"
)

// author is who wrote a version of an object.
type author struct {
	*write
	who    string    // the process
	at     time.Time // of the answer
	unread bool      // the process did not get the answer
}

// user is who does the steps.
const user = "user"

// object is the key of an object among all kinds.
func object(of schema.GroupVersionResource, namespace, name string) string {
	return of.Resource + "." + of.Group + " " + namespace + "/" + name
}

// begin names a write.
func (r *run) begin(l *connection, t apipath.Target, of schema.GroupVersionResource) *write {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := t.Verb + " " + of.Resource
	if t.Subresource != "" {
		name += "/" + t.Subresource
	}
	if t.Name != "" {
		name += " " + t.Namespace + "/" + cmp.Or(r.generated[object(of, t.Namespace, t.Name)], t.Name)
	} else if t.Namespace != "" {
		name += " in " + t.Namespace
	}
	w := &write{name: name, verb: t.Verb, resource: of, under: l.under, step: r.record.step, slow: len(r.record.all) >= hot}
	r.record.all = append(r.record.all, w)
	if l.under {
		r.counts[name]++
		w.nth = r.counts[name]
		r.record.writes = append(r.record.writes, w)
	}
	return w
}

// answered learns from an answer whether a write had an effect.
func (r *run) answered(w *write, who string, meta metav1.ObjectMeta) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if meta.GenerateName != "" {
		r.generated[object(w.resource, meta.Namespace, meta.Name)] = meta.GenerateName + "*"
	}
	key := w.resource.Resource + " " + meta.ResourceVersion
	// The end of an object by its last finalizer is answered with the version before.
	gone := meta.DeletionTimestamp != nil && len(meta.Finalizers) == 0
	w.effective = meta.ResourceVersion == "" || r.versions[key] == nil || w.verb == "delete" || gone
	if who == user {
		r.userWrites++
	}
	a := &author{write: w, who: who, at: time.Now(), unread: loses(r.plan.Fault) && r.isPlanLocked(w)}
	if w.effective {
		r.versions[key] = a
		r.newest[object(w.resource, meta.Namespace, meta.Name)] = a
	}
}

// loses reports whether the process does not get the answer.
func loses(f Fault) bool {
	switch f {
	case CrashAfter, OldList, CrashThenStep, CrashThenAll, LoseAnswer, LoseAnswerLate:
		return true
	}
	return false
}

// refused looks at a conflict. It is a mistake if what the process had not seen is a write of its
// own that was answered before: not at the same time, as two workers may do. If keys of controllers
// made both, they must be one key: two may write an object in turns, and try again. Other programs
// may rely on names: they do not wait, and create an object again.
func (r *run) refused(w *write, who, namespace string, s *metav1.Status) {
	if s.Reason != metav1.StatusReasonConflict && s.Reason != metav1.StatusReasonAlreadyExists || s.Details == nil || r.plan.Fault == Restore {
		return
	}
	for _, cause := range s.Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.newest[object(w.resource, namespace, s.Details.Name)]
	switch {
	case a == nil || a.who != who || a.by != w.by || a.unread:
	case time.Since(a.at) < time.Second && r.plan.Fault != None:
	case s.Reason == metav1.StatusReasonAlreadyExists && (a.verb == "delete" || w.by == ""):
	case s.Reason == metav1.StatusReasonConflict && a.name != w.name:
	default:
		r.record.unseen[w.name] = fmt.Sprintf("%s did not see its own write: %s #%d was answered, and %s later %s #%d was refused: %s",
			who, a.name, a.nth, time.Since(a.at).Round(time.Second), w.name, w.nth, strings.TrimSpace(s.Message))
	}
}

// outlived reports a write of a process whose Lease has expired.
func (r *run) outlived(l *connection, w *write) {
	if r.plan.Fault != LoseLease {
		return
	}
	l.mu.Lock()
	renewed, lasts := l.renewed, l.lasts
	l.mu.Unlock()
	if late := time.Since(renewed) - lasts; lasts > 0 && late > 0 {
		r.fail("%s writes %s #%d, and its Lease expired %s before", l.who, w.name, w.nth, late.Round(time.Millisecond))
	}
}

// setting is a value that a field got.
type setting struct{ value, who string }

// fights finds fields that two programs change to and fro, by object and path.
type fights map[string][]setting

// change adds the differences of two versions of an object. It returns a sentence for each field
// that has been changed to and fro twice.
func (f fights) change(key, who string, all []difference) (found []string) {
	for _, d := range all {
		if who == "" || who == user {
			delete(f, key+d.path)
			continue
		}
		s := append(f[key+d.path], setting{d.got, who})
		f[key+d.path] = s
		n := len(s)
		if n == 4 && s[0] == s[2] && s[1] == s[3] && s[0].who != s[1].who && s[0].value != s[1].value {
			found = append(found, fmt.Sprintf("two programs change %s%s to and fro: %s to %s, %s to %s", key, d.path, s[0].who, s[0].value, s[1].who, s[1].value))
		}
		if n == 4 {
			f[key+d.path] = s[1:]
		}
	}
	return found
}
