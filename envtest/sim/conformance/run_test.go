// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// difference is a step whose responses differ.
type difference struct {
	step  int
	lines []string
}

func (d difference) in(s script) string {
	name := "the events of a watch"
	if d.step < len(s.steps) {
		name = s.steps[d.step].String()
	}
	return fmt.Sprintf("%s\n\t%s", name, strings.Join(d.lines, "\n\t"))
}

var namespaces atomic.Int64

var served = []sim.Resource{
	sim.ConfigMaps, sim.Secrets, sim.Pods, sim.Events, sim.Namespaces, sim.Deployments, sim.Leases,
	{Version: "v1", Kind: "Service", Name: "services", Namespaced: true},
	{Version: "v1", Kind: "ServiceAccount", Name: "serviceaccounts", Namespaced: true},
	{Version: "v1", Kind: "PersistentVolumeClaim", Name: "persistentvolumeclaims", Namespaced: true},
	{Version: "v1", Kind: "PersistentVolume", Name: "persistentvolumes"},
	{Version: "v1", Kind: "ReplicationController", Name: "replicationcontrollers", Namespaced: true},
	{Version: "v1", Kind: "LimitRange", Name: "limitranges", Namespaced: true},
	{Version: "v1", Kind: "Node", Name: "nodes"},
	{Group: "apps", Version: "v1", Kind: "ReplicaSet", Name: "replicasets", Namespaced: true},
	{Group: "apps", Version: "v1", Kind: "DaemonSet", Name: "daemonsets", Namespaced: true},
	{Group: "apps", Version: "v1", Kind: "StatefulSet", Name: "statefulsets", Namespaced: true},
	{Group: "batch", Version: "v1", Kind: "Job", Name: "jobs", Namespaced: true},
	{Group: "batch", Version: "v1", Kind: "CronJob", Name: "cronjobs", Namespaced: true},
	{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress", Name: "ingresses", Namespaced: true},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy", Name: "networkpolicies", Namespaced: true},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler", Name: "horizontalpodautoscalers", Namespaced: true},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role", Name: "roles", Namespaced: true},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding", Name: "rolebindings", Namespaced: true},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "clusterroles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding", Name: "clusterrolebindings"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget", Name: "poddisruptionbudgets", Namespaced: true},
	{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass", Name: "storageclasses"},
	{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice", Name: "endpointslices", Namespaced: true},
	{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass", Name: "priorityclasses"},
	{Group: "conformance.setpoint.dev", Version: "v1", Kind: "Widget", Name: "widgets", Namespaced: true},
	{Group: "conformance.setpoint.dev", Version: "v1", Kind: "Gadget", Name: "gadgets", Namespaced: true},
	{Group: "conformance.setpoint.dev", Version: "v1", Kind: "Beacon", Name: "beacons"},
}

// newSim returns a simulated server with the kinds of the suite.
func newSim() *side {
	server := sim.NewServer(served...)
	return &side{host: sim.Host, client: &http.Client{Transport: server}}
}

// compare runs a script on the real server and on a new simulated one. It returns the steps whose
// responses differ. An error means that the script did not run on the real server.
func compare(ctx context.Context, host string, client *http.Client, s script) ([]difference, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	namespace := fmt.Sprintf("c%d", namespaces.Add(1))
	real, sim := &side{host: host, client: client, real: true}, newSim()
	for _, one := range []*side{real, sim} {
		one.prepare(namespace)
		defer one.close()
		r, err := one.do(ctx, parseStep(`POST namespaces {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"{ns}","labels":{"case":"{ns}"}}}`))
		if err != nil || r.Status != http.StatusCreated {
			return nil, fmt.Errorf("cannot create a namespace: %v, %w", r, err)
		}
	}
	var found []difference
	for i, step := range s.steps {
		want, err := real.do(ctx, step)
		if err != nil {
			return found, fmt.Errorf("%s on the real server: %w", step, err)
		}
		has, err := sim.promptly(ctx, step)
		if err != nil {
			return append(found, difference{i, []string{"sim: " + err.Error()}}), nil
		}
		lines := diffResponses(want, has)
		if len(lines) > 0 && isDocumented(step, want, has) {
			return found, nil
		}
		if len(lines) > 0 {
			found = append(found, difference{i, lines})
		}
	}
	if len(found) > 0 {
		return found, nil // the events follow from the responses
	}
	return compareWatches(ctx, len(s.steps), real, sim)
}

// prepare empties what a side knows.
func (s *side) prepare(namespace string) {
	s.namespace, s.seen, s.symbols = namespace, map[string]map[string][]string{}, newSymbols()
}

func compareWatches(ctx context.Context, step int, real, sim *side) ([]difference, error) {
	var found []difference
	for i := range min(len(real.watches), len(sim.watches)) {
		want, err := real.events(ctx, real.watches[i])
		if err != nil {
			return found, fmt.Errorf("watch %d of the real server: %w", i+1, err)
		}
		short, cancel := context.WithTimeout(ctx, promptness)
		has, err := sim.events(short, sim.watches[i])
		cancel()
		if err != nil {
			found = append(found, difference{step, []string{"sim: " + err.Error()}})
		} else if lines := diffEvents(want, has); len(lines) > 0 {
			found = append(found, difference{step, lines})
		}
	}
	return found, nil
}

// promptness is what the simulation may take for what the real server does in the background.
const promptness = 2 * time.Second

// promptly does a step on the simulation, which has nothing to wait for.
func (s *side) promptly(ctx context.Context, one step) (*response, error) {
	if one.method == "GONE" || one.method == "UNTIL" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, promptness)
		defer cancel()
	}
	return s.do(ctx, one)
}

func diffEvents(real, sim []any) []string {
	for i := range max(len(real), len(sim)) {
		path := fmt.Sprintf("event %d", i+1)
		switch {
		case i >= len(real):
			return []string{fmt.Sprintf("%s\n\t\treal has none\n\t\tsim  %s", path, short(sim[i]))}
		case i >= len(sim):
			return []string{fmt.Sprintf("%s\n\t\treal %s\n\t\tsim  has none", path, short(real[i]))}
		}
		if lines := diff(path, real[i], sim[i]); len(lines) > 0 {
			return lines
		}
	}
	return nil
}

func (s *side) close() {
	for _, w := range s.watches {
		w.Body.Close()
	}
}
