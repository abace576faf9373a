// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhooktest

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	creating = "create"
	updating = "update"
	deleting = "delete"
)

type sample struct {
	operation string
	example   *unstructured.Unstructured
	changes   []change
	object    map[string]any // the example with the changes
}

func samplesOf(examples []*unstructured.Unstructured, v *variants, count int) (all []sample) {
	for _, e := range examples {
		all = append(all, sample{creating, e, nil, e.Object}, sample{updating, e, nil, e.Object}, sample{deleting, e, nil, e.Object})
		for _, changes := range v.of(e, count) {
			object, changes := applied(e.Object, changes)
			all = append(all, sample{creating, e, changes, object}, sample{updating, e, changes, object})
		}
	}
	return all
}

func (s sample) without(i int) sample {
	object, changes := applied(s.example.Object, slices.Delete(slices.Clone(s.changes), i, i+1))
	return sample{s.operation, s.example, changes, object}
}

func (s sample) String() string {
	line := fmt.Sprintf("%s the %s %q", s.operation, s.example.GetKind(), s.example.GetName())
	var changes []string
	for _, c := range s.changes {
		changes = append(changes, c.String())
	}
	if len(changes) == 0 {
		return line
	}
	return line + " with " + strings.Join(changes, ", and ")
}

// fieldNames identifies the fields of a sample.
func (s sample) fieldNames() string {
	all := s.example.GetKind()
	for _, c := range s.changes {
		all += " " + strings.Join(c.path, ".")
	}
	return all
}

// answer is what the API server answers to a sample.
type answer struct {
	denied string         // its message, or "" if the request is allowed
	object map[string]any // of an allowed request
}

func (a answer) String() string {
	if a.denied != "" {
		return "denied: " + a.denied
	}
	return "allowed"
}

// difference is a sample with two different answers.
type difference struct {
	sample

	webhook, policy answer
	fields          []string // of the two objects, if both are allowed
}

func differing(s sample, webhook, policy answer) *difference {
	if (webhook.denied != "") != (policy.denied != "") {
		return &difference{s, webhook, policy, nil}
	}
	r := &report{format: "%s: %s by the webhook, %s by the policy"}
	r.compare("", webhook.object, policy.object)
	if webhook.denied == "" && len(r.lost) > 0 {
		return &difference{s, webhook, policy, r.lost}
	}
	return nil
}

// partsOf returns the samples of differences that have several changes, each without one of them.
func partsOf(found []difference) (parts []sample) {
	const most = 20 // differences, of those with the fewest changes
	sortBySize(found)
	for _, d := range found[:min(len(found), most)] {
		if len(d.changes) != len(found[0].changes) {
			break
		}
		for i := range d.changes {
			parts = append(parts, d.without(i))
		}
	}
	return parts
}

func sortBySize(all []difference) {
	slices.SortStableFunc(all, func(a, b difference) int { return len(a.changes) - len(b.changes) })
}

// describe returns the text of a failure, or "". It has the smallest differences, each of other
// fields.
func describe(found []difference, requests int) string {
	const most = 5
	if len(found) == 0 {
		return ""
	}
	sortBySize(found)
	seen := map[string]bool{}
	lines := []string{fmt.Sprintf("the webhook and the policy differ, in %d of %d requests", len(found), requests)}
	for _, d := range found {
		if len(d.changes) > len(found[0].changes) || seen[d.fieldNames()] || len(seen) == most {
			continue
		}
		seen[d.fieldNames()] = true
		lines = append(lines, d.String())
		if d.fields == nil {
			lines = append(lines, "  webhook: "+d.webhook.String(), "  policy:  "+d.policy.String())
		}
		for _, field := range d.fields {
			lines = append(lines, "  "+field)
		}
		object, _ := yaml.Marshal(d.object) // decoded from JSON
		lines = append(lines, "  object:", "    "+strings.ReplaceAll(strings.TrimSpace(string(object)), "\n", "\n    "))
	}
	return strings.Join(lines, "\n")
}
