// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// symbols replaces the values that two servers choose differently: by their order of appearance, so
// that equal values stay equal and different ones different.
type symbols struct {
	names  map[string]string // by value
	counts map[string]int
}

// minLength excludes versions, which look like other numbers, from the replacement in texts.
const minLength = 6

func newSymbols() symbols { return symbols{names: map[string]string{}, counts: map[string]int{}} }

var (
	instant  = regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( \+0000 UTC|Z|\+00:00)?`)
	address  = regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`)
	uuid     = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	versions = regexp.MustCompile(`((?i:resource ?version|current|record|version|revision|cause)[^0-9"]{0,30})(\d+)( \(\d+\))?`)
	// program is the name of the control plane program, which has the controllers.
	program = regexp.MustCompile(`^v\d+\.\d+\.\d+-go\d`)
	// age is the age of an object in a table.
	age = regexp.MustCompile(`^\d+s$`)
	// generated is a generated name of the suite's scripts.
	generated = regexp.MustCompile(`^n-[a-z0-9]{5}$`)
	// ownersInText are the managedFields of an object within a message.
	ownersInText = regexp.MustCompile(`managedFields\\":\[[^\]]*\]`)
	// embedded is a version in an object within a message, or in YAML.
	embedded = regexp.MustCompile(`(resourceVersion(?:\\*":\\*"|: "))\d+`)
)

// symbol returns the symbol of a value.
func (s symbols) symbol(class, value string) string {
	if s.names[value] == "" {
		s.counts[class]++
		s.names[value] = fmt.Sprintf("<%s %d>", class, s.counts[class])
	}
	return s.names[value]
}

func (s symbols) mask(body any) any {
	s.learn(body)
	return s.replace("", body)
}

// learn gives symbols to the values of a body, in the order of its fields.
func (s symbols) learn(body any) {
	switch v := body.(type) {
	case []any:
		for _, one := range v {
			s.learn(one)
		}
	case map[string]any:
		if uid, _ := v["uid"].(string); uid != "" {
			s.symbol("uid", uid)
		}
		name, _ := v["name"].(string)
		// A refused object may have a generated name.
		if details, _ := v["details"].(map[string]any); details != nil {
			if refused, _ := details["name"].(string); generated.MatchString(refused) {
				s.symbol("name", refused)
			}
		}
		if generate, _ := v["generateName"].(string); generate != "" && len(name) == len(generate)+5 {
			s.symbol("name", name)
		}
		for _, field := range slices.Sorted(maps.Keys(v)) {
			s.learn(v[field])
		}
	}
}

// replace returns a body with symbols.
func (s symbols) replace(field string, body any) any {
	switch v := body.(type) {
	case []any:
		list := make([]any, len(v))
		for i, one := range v {
			if text, is := one.(string); is && field == "cells" && age.MatchString(text) {
				one = "<age>" // of a row of a table
			}
			list[i] = s.replace("", one)
		}
		return list
	case map[string]any:
		_, isList := v["items"]
		object := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			value := v[name]
			if meta, ok := value.(map[string]any); ok && name == "metadata" && (isList || onlyVersion(meta)) {
				meta = maps.Clone(meta)
				meta["resourceVersion"] = "<any>" // other clients' writes count too
				value = meta
			}
			// The order of managedFields depends on the second.
			if entries, ok := value.([]any); ok && name == "managedFields" {
				value = byManager(entries)
			}
			// Conflicts have no order. The message shows the order of other causes.
			if causes, ok := value.([]any); ok && name == "causes" {
				value = byField(causes)
			}
			key := name
			if strings.HasPrefix(name, "k:{") { // an item of a list in managedFields
				key = s.text("", name)
			}
			object[key] = s.replace(name, value)
		}
		return object
	case string:
		return s.text(field, v)
	case float64:
		if field == "nodePort" && v >= 30000 {
			return "<node port>"
		}
	}
	return body
}

// byManager sorts managedFields.
func byManager(entries []any) []any {
	id := func(entry any) string {
		e, _ := entry.(map[string]any)
		return fmt.Sprint(e["manager"], e["operation"], e["subresource"], e["apiVersion"])
	}
	return slices.SortedStableFunc(slices.Values(entries), func(a, b any) int { return strings.Compare(id(a), id(b)) })
}

// sortOwners sorts managedFields within a message like byManager.
func sortOwners(text string) string {
	head, list, some := strings.Cut(strings.TrimSuffix(text, "}]"), "[{")
	if !some {
		return text
	}
	entries := strings.Split(list, `},{`)
	slices.Sort(entries)
	return head + "[{" + strings.Join(entries, "},{") + "}]"
}

// byField sorts the causes of a Status.
func byField(causes []any) []any {
	id := func(cause any) string {
		c, _ := cause.(map[string]any)
		return fmt.Sprint(c["reason"], c["field"], c["message"])
	}
	return slices.SortedStableFunc(slices.Values(causes), func(a, b any) int { return strings.Compare(id(a), id(b)) })
}

// onlyVersion reports whether metadata belongs to a bookmark.
func onlyVersion(meta map[string]any) bool {
	return meta["resourceVersion"] != nil && meta["name"] == nil && meta["creationTimestamp"] == nil
}

func (s symbols) text(field, v string) string {
	switch {
	case field == "resourceVersion":
		if n, err := strconv.ParseUint(v, 10, 64); err == nil && n > 0 {
			return s.symbol("version", v)
		}
		return v
	case field == "continue" && v != "":
		return "<token>"
	case field == "manager" && program.MatchString(v):
		return "kube-controller-manager"
	case field == "serverAddress":
		return "<address>"
	case len(v) >= minLength && s.names[v] != "":
		return s.names[v]
	}
	if len(v) < minLength {
		return v
	}
	v = instant.ReplaceAllString(v, "<time>")
	v = address.ReplaceAllString(v, "<address>")
	for value, name := range s.names {
		if len(value) >= minLength && !strings.HasPrefix(name, "<version") {
			v = strings.ReplaceAll(v, value, name)
		}
	}
	v = uuid.ReplaceAllStringFunc(v, func(id string) string { return s.symbol("uid", id) })
	v = ownersInText.ReplaceAllStringFunc(v, sortOwners)
	v = embedded.ReplaceAllString(v, "$1<version>")
	return versions.ReplaceAllString(v, "$1<version>")
}
