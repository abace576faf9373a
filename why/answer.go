// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is the object in question.
type Object struct {
	// Kind is a kind or resource, such as Website or websites, in any case. It may have a group, as
	// in websites.example.com, or a version and a group, as in Website.v1.example.com.
	Kind string `json:"kind"`
	// Namespace is empty for cluster-scoped kinds.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Values allows the answers to have values of fields, except of Secrets, and to look for an
	// object whose kind no controller watches at the API server.
	Values bool `json:"-"`
}

// Key returns the namespace and the name.
func (o Object) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

// Is reports whether the object's Kind means a kind.
func (o Object) Is(kind schema.GroupVersionKind) bool {
	plural, singular := meta.UnsafeGuessKindToResource(kind)
	for _, name := range []string{kind.Kind, plural.Resource, singular.Resource} {
		for _, form := range []string{name, name + "." + kind.Group, name + "." + kind.Version + "." + kind.Group} {
			if strings.EqualFold(o.Kind, strings.TrimSuffix(form, ".")) {
				return true
			}
		}
	}
	return false
}

// String returns the kind and the name.
func (o Object) String() string {
	return strings.TrimSpace(o.Kind + " " + strings.TrimPrefix(o.Key().String(), "/"))
}

// Answer is one cause. An object may have several, for example one for each controller.
type Answer struct {
	Reason Reason `json:"reason"`
	// Controller is the controller's name, or empty if none watches the kind.
	Controller string `json:"controller,omitempty"`
	// Key is the text of the key in the controller's queue, if the object is mapped to one.
	Key string `json:"key,omitempty"`
	// Cause is one sentence, without the controller and the key.
	Cause string `json:"cause"`
	// Remedy is one command or change that helps. It is empty if nothing is wrong.
	Remedy string `json:"remedy,omitempty"`
	// Since is when this state began, or zero if that is not known.
	Since time.Time `json:"since,omitzero"`
	// Evidence has further facts, one each.
	Evidence []string `json:"evidence,omitempty"`
}

// String returns several lines: the cause, the remedy, and the evidence.
func (a Answer) String() string {
	head := strings.TrimSpace(a.Controller + " " + a.Key)
	if head != "" {
		head += ": "
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n", head, oneLine(a.Cause))
	if a.Remedy != "" {
		fmt.Fprintf(&b, "  remedy: %s\n", oneLine(a.Remedy))
	}
	fmt.Fprintf(&b, "  reason: %s", a.Reason)
	if !a.Since.IsZero() {
		fmt.Fprintf(&b, ", since %s", a.Since.Format(time.RFC3339))
	}
	b.WriteByte('\n')
	for _, e := range a.Evidence {
		fmt.Fprintf(&b, "  %s\n", oneLine(e))
	}
	return b.String()
}

// oneLine keeps an error text from looking like further evidence, and from changing what a terminal
// shows.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) || r == '\u2028' || r == '\u2029' }), " ")
}

// Answers are all answers about an object, the most important one first.
type Answers struct {
	Object  Object   `json:"object"`
	Answers []Answer `json:"answers"`
}

// String returns the text of each answer.
func (a Answers) String() string {
	var b strings.Builder
	for _, one := range a.Answers {
		b.WriteString(one.String())
	}
	return b.String()
}
