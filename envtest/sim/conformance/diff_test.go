// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// diff returns a line for each difference between two JSON values.
func diff(path string, real, sim any) []string {
	if reflect.DeepEqual(real, sim) {
		return nil
	}
	if a, ok := real.(map[string]any); ok {
		if b, ok := sim.(map[string]any); ok {
			return diffMaps(path, a, b)
		}
	}
	if a, ok := real.([]any); ok {
		if b, ok := sim.([]any); ok && len(a) == len(b) {
			var lines []string
			for i := range a {
				lines = append(lines, diff(fmt.Sprintf("%s[%d]", path, i), a[i], b[i])...)
			}
			return lines
		}
	}
	return []string{fmt.Sprintf("%s\n\t\treal %s\n\t\tsim  %s", path, short(real), short(sim))}
}

func diffMaps(path string, real, sim map[string]any) []string {
	names := maps.Clone(real)
	maps.Copy(names, sim)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, inReal := real[name]
		b, inSim := sim[name]
		switch {
		case !inReal:
			lines = append(lines, fmt.Sprintf("%s.%s\n\t\treal has none\n\t\tsim  %s", path, name, short(b)))
		case !inSim:
			lines = append(lines, fmt.Sprintf("%s.%s\n\t\treal %s\n\t\tsim  has none", path, name, short(a)))
		default:
			lines = append(lines, diff(path+"."+name, a, b)...)
		}
	}
	return lines
}

func short(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if len(data) > 600 {
		return string(data[:600]) + "…"
	}
	return string(data)
}

// diffResponses returns a line for each difference between the responses to a step.
func diffResponses(one step, real, sim *response) []string {
	if real == nil || sim == nil {
		return nil // a step that waits
	}
	var lines []string
	if real.Status != sim.Status {
		lines = append(lines, fmt.Sprintf("code\n\t\treal %d\n\t\tsim  %d", real.Status, sim.Status))
	}
	lines = append(lines, diff("header", plainJSON(real.Headers), plainJSON(sim.Headers))...)
	if isOpenAPI(one) {
		return append(lines, diffDocuments(real.Body, sim.Body)...)
	}
	return append(lines, diff("body", real.Body, sim.Body)...)
}

func plainJSON(headers map[string][]string) any {
	all := map[string]any{}
	for name, values := range headers {
		list := []any{}
		for _, v := range values {
			list = append(list, v)
		}
		all[name] = list
	}
	return all
}

// exception is a difference that the package doc lists.
type exception struct {
	doc     string // a part of the package doc
	matches func(one step, real, sim *response) bool
}

// documented are the differences in the package doc of sim that the suite meets. A script ends at
// one of them, because the two servers differ from there on.
var documented = []exception{
	{"Built-in kinds have only these other rules", acceptsMore},
	{"Garbage collection and namespace deletion happen in one step right after the request", settlesLater},
	{"The order of these deletions is fixed: dependents in the order of their creation", keepsOwners},
	{"/metrics, /logs and the list of paths are not supported", isUnsupported},
	{"An apply of a custom object with an empty list or map in its metadata always makes a version", appliesEmptyMetadata},
	{"the immutable fields of Pods (without the diff that ends the real message)", lacksDiff},
}

// acceptsMore reports whether only the real server finds a built-in object invalid, for a rule
// about other fields than metadata that the sim does not list.
func acceptsMore(one step, real, sim *response) bool {
	if p := plural(one.target); p != "pods" && p != "services" || real.Status != http.StatusUnprocessableEntity || sim.Status >= http.StatusBadRequest {
		return false
	}
	body, _ := real.Body.(map[string]any)
	details, _ := body["details"].(map[string]any)
	causes, _ := details["causes"].([]any)
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c any) bool {
		cause, _ := c.(map[string]any)
		field, _ := cause["field"].(string)
		return strings.HasPrefix(field, "metadata") || strings.HasPrefix(field, "spec.containers[")
	})
}

// lacksDiff reports whether the real server's refusal of a Pod is the sim's and a diff.
func lacksDiff(one step, real, sim *response) bool {
	message := func(r *response) string {
		body, _ := r.Body.(map[string]any)
		text, _ := body["message"].(string)
		return text
	}
	before, _, found := strings.Cut(message(real), "\n@@")
	return plural(one.target) == "pods" && found && real.Status == sim.Status && strings.HasPrefix(message(sim), before)
}

// appliesEmptyMetadata reports whether the step applies an empty list, and only versions differ.
func appliesEmptyMetadata(one step, real, sim *response) bool {
	if !slices.Contains(one.options, "apply") || !strings.Contains(one.body, `"finalizers":[]`) || !strings.Contains(one.body, `"conformance.setpoint.dev/v1"`) {
		return false
	}
	return !slices.ContainsFunc(diffResponses(one, real, sim), func(line string) bool { return !strings.HasPrefix(line, "body.metadata.resourceVersion\n") })
}

// keepsOwners reports whether an object that is being deleted only has other owners left.
func keepsOwners(one step, real, sim *response) bool {
	body, _ := real.Body.(map[string]any)
	meta, _ := body["metadata"].(map[string]any)
	return meta["deletionTimestamp"] != nil && !slices.ContainsFunc(diffResponses(one, real, sim), func(line string) bool {
		return !strings.HasPrefix(line, "body.metadata.ownerReferences") && !strings.HasPrefix(line, "body.metadata.managedFields")
	})
}

// settlesLater reports whether the step deletes a namespace, which the real server empties later.
func settlesLater(one step, _, _ *response) bool {
	return one.method == http.MethodDelete && plural(one.target) == "namespaces"
}

func isUnsupported(_ step, _, sim *response) bool { return sim.Status == http.StatusNotImplemented }

func isDocumented(one step, real, sim *response) bool {
	return slices.ContainsFunc(documented, func(d exception) bool { return d.matches(one, real, sim) })
}

// TestDifferencesAreDocumented requires that the package doc lists each difference that the suite
// accepts.
func TestDifferencesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../doc.go")
	testkit.NoError(t, err)
	_, list, _ := strings.Cut(string(text), "# Differences")
	words := strings.Join(strings.Fields(strings.ReplaceAll(list, "//", "")), " ")
	texts := []string{describesLess}
	for _, d := range documented {
		texts = append(texts, d.doc)
	}
	for _, text := range texts {
		testkit.Contains(t, words, text, "the package doc of sim lists the differences that the suite accepts")
	}
}
