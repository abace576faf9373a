// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// An earlier difference is one between an older real server and the simulation, which follows the
// newest release.
type earlier struct {
	until   int    // the last minor version that has it
	row     string // in the table of docs/versions.md
	matches func(one step, real, sim *response) bool
	met     atomic.Int64
}

// realMinor is the minor version of the real server.
var realMinor atomic.Int64

// readMinor sets realMinor.
func readMinor(client *http.Client, host string) error {
	resp, err := client.Get(host + "/version")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var version struct{ Minor string }
	if err := json.NewDecoder(resp.Body).Decode(&version); err != nil {
		return err
	}
	minor, err := strconv.ParseInt(version.Minor, 10, 64)
	realMinor.Store(minor)
	return err
}

// newestMinor is the minor version that the simulation follows.
func newestMinor() int64 {
	minor, err := strconv.ParseInt(strings.Split(envtest.KubernetesVersion, ".")[1], 10, 64)
	if err != nil {
		panic(err) // it is a constant
	}
	return minor
}

// isEarlier reports whether the table contains the difference for this real server.
func isEarlier(one step, real, sim *response) bool {
	if real == nil || sim == nil {
		return false
	}
	for i := range earlierDifferences {
		e := &earlierDifferences[i]
		if realMinor.Load() <= int64(e.until) && e.matches(one, real, sim) {
			e.met.Add(1)
			return true
		}
	}
	return false
}

// refused reports whether a step has changed nothing.
func refused(real, sim *response) bool {
	return real.Status >= http.StatusBadRequest && sim.Status >= http.StatusBadRequest
}

var earlierDifferences = []earlier{
	{until: 36, row: "OpenAPI documents describe the kinds and fields of their release, and elements of lists have a default.",
		matches: func(one step, _, _ *response) bool { return isOpenAPI(one) }},
	{until: 36, row: "`certificates.k8s.io/v1` has no ClusterTrustBundle and no PodCertificateRequest, `resource.k8s.io/v1` no DeviceTaintRule, and there is no `storagemigration.k8s.io/v1`.",
		matches: func(one step, real, _ *response) bool {
			return real.Status == http.StatusNotFound && newKinds.MatchString(one.target)
		}},
	{until: 36, row: "A CSINode has no status.",
		matches: only("body.status", func(one step) bool { return strings.Contains(one.target, "/csinodes") })},
	{until: 36, row: "A HorizontalPodAutoscaler has no `metadata.generation`.",
		matches: only("body.metadata.generation", func(one step) bool { return strings.Contains(one.target, "/horizontalpodautoscalers") })},
	{until: 36, row: "The rolling update of a StatefulSet has no default for `maxUnavailable`.",
		matches: func(one step, real, sim *response) bool {
			return strings.Contains(one.target, "/statefulsets") && everyLine(one, real, sim, "maxUnavailable")
		}},
	{until: 36, row: "The errors of an invalid update can have the same cause twice.", matches: repeatsCauses},
	{until: 36, row: "The error of an invalid owner reference has no index, and the reason `FieldValueInvalid` for a missing field.",
		matches: func(_ step, real, sim *response) bool {
			return real.Status == sim.Status && strings.Contains(message(real), "metadata.ownerReferences") && strings.Contains(message(sim), "metadata.ownerReferences[")
		}},
	{until: 36, row: "A patch that is not JSON is found after the object was read, with another message.",
		matches: func(_ step, _, sim *response) bool { return message(sim) == "invalid JSON patch" }},
	{until: 36, row: "The error of an apply that cannot be decoded begins with `error decoding YAML`.",
		matches: func(_ step, real, sim *response) bool {
			return strings.Contains(message(real), "decoding YAML:") && strings.Contains(message(sim), "coding patch:")
		}},
	{until: 36, row: "The error of an object that a conversion webhook does not convert is the webhook's, without `object not decodable`.",
		matches: func(_ step, real, sim *response) bool {
			return strings.HasSuffix(message(sim), message(real)) && strings.Contains(message(sim), "object not decodable")
		}},
	{until: 36, row: "A write of the status with another kind removes the `managedFields` of a custom object.",
		matches: only("body.metadata.managedFields", func(one step) bool { return strings.Contains(one.body, `"kind":"Other`) })},
	{until: 36, row: "The error of an access review without a subject names `spec.resourceAttributes` or `spec.nonResourceAttributes` instead of `spec`.",
		matches: func(one step, real, sim *response) bool {
			return strings.Contains(one.target, "accessreviews") && real.Status == sim.Status && real.Status == http.StatusUnprocessableEntity
		}},
	{until: 35, row: "The writer of a custom object's status owns the labels and annotations in its request, which are ignored.",
		matches: func(one step, real, sim *response) bool {
			return strings.Contains(one.target, "/status") && everyLine(one, real, sim, "managedFields", "metadata.resourceVersion")
		}},
	{until: 35, row: "`admissionregistration.k8s.io/v1` has no MutatingAdmissionPolicy and no MutatingAdmissionPolicyBinding.",
		matches: func(one step, real, _ *response) bool {
			return real.Status == http.StatusNotFound && strings.Contains(one.target, "/mutatingadmissionpolic")
		}},
	{until: 35, row: "The name of a Service must begin with a letter.",
		matches: func(_ step, real, _ *response) bool {
			return strings.HasPrefix(message(real), "Service ") && strings.Contains(message(real), "a DNS-1035 label must")
		}},
}

var newKinds = regexp.MustCompile(`/(clustertrustbundles|podcertificaterequests|devicetaintrules|storageversionmigrations)\b`)

// message returns the message of a Status.
func message(r *response) string {
	body, _ := r.Body.(map[string]any)
	text, _ := body["message"].(string)
	return text
}

// only matches a difference in one field.
func only(path string, of func(step) bool) func(one step, real, sim *response) bool {
	return func(one step, real, sim *response) bool {
		lines := diffResponses(one, real, sim)
		return of(one) && len(lines) == 1 && strings.HasPrefix(lines[0], path+"\n")
	}
}

// everyLine reports whether each difference is at or below a field with one of the names.
func everyLine(one step, real, sim *response, names ...string) bool {
	return !slices.ContainsFunc(diffResponses(one, real, sim), func(line string) bool {
		path, _, _ := strings.Cut(line, "\n")
		return !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(path, name) })
	})
}

// repeatsCauses reports whether the real server's causes are the sim's, some of them twice.
func repeatsCauses(one step, real, sim *response) bool {
	causes := func(r *response) []any {
		body, _ := r.Body.(map[string]any)
		details, _ := body["details"].(map[string]any)
		list, _ := details["causes"].([]any)
		return list
	}
	compact := slices.CompactFunc(slices.Clone(causes(real)), reflect.DeepEqual)
	lines := diffResponses(one, real, sim)
	return len(lines) == 1 && strings.HasPrefix(lines[0], "body.details.causes\n") && reflect.DeepEqual(compact, causes(sim))
}

// TestV1_EarlierDifferencesAreMet requires that the scripts meet each difference in the table that
// this real server should have.
func TestV1_EarlierDifferencesAreMet(t *testing.T) {
	if realMinor.Load() == 0 {
		t.Skip("the scripts did not run before it")
	}
	for i := range earlierDifferences {
		e := &earlierDifferences[i]
		if realMinor.Load() <= int64(e.until) && e.met.Load() == 0 {
			t.Errorf("Kubernetes 1.%d has not this difference, remove it from the table or lower its version: %s", realMinor.Load(), e.row)
		}
	}
}

const (
	versionsFile  = "../../../docs/versions.md"
	earlierHeader = "| up to | on an older control plane |\n|---|---|\n"
	maxEarlier    = 40
)

// TestEarlierDifferences_AreTheTableInTheDocs compares docs/versions.md. With -update, it writes
// the table there.
func TestEarlierDifferences_AreTheTableInTheDocs(t *testing.T) {
	if n := len(earlierDifferences); n > maxEarlier {
		t.Errorf("the table has %d differences, at most %d are acceptable: drop a release, or simulate it", n, maxEarlier)
	}
	var table strings.Builder
	table.WriteString(earlierHeader)
	for i := range earlierDifferences {
		fmt.Fprintf(&table, "| 1.%d | %s |\n", earlierDifferences[i].until, earlierDifferences[i].row)
	}
	text, err := os.ReadFile(versionsFile)
	testkit.NoError(t, err)
	before, rest, found := strings.Cut(string(text), earlierHeader)
	if !found {
		t.Fatalf("docs/versions.md has no table that begins with\n%s", earlierHeader)
	}
	for strings.HasPrefix(rest, "|") {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	if after := before + table.String() + rest; after == string(text) {
		return
	} else if *update {
		testkit.NoError(t, os.WriteFile(versionsFile, []byte(after), 0o600))
		return
	}
	t.Error("the table in docs/versions.md is another one; run 'go test ./envtest/sim/conformance -run TestEarlier -update'")
}
