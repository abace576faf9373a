// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	_ "embed" // for crds
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

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

//go:embed testdata/crds.yaml
var crds []byte

// newSim returns a simulated server with the kinds of the suite.
func newSim() (*side, error) {
	server := sim.NewServer()
	var definitions []runtime.Object
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(crds), len(crds)); ; {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		definitions = append(definitions, u)
	}
	return &side{host: sim.Host, client: &http.Client{Transport: server}}, server.Load(scheme.Scheme, definitions...)
}

// compare runs a script on the real server and on a new simulated one. It returns the steps whose
// responses differ. An error means that the script did not run on the real server.
func compare(ctx context.Context, host string, client *http.Client, s script) ([]difference, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	namespace := fmt.Sprintf("c%d", namespaces.Add(1))
	sim, err := newSim()
	if err != nil {
		return nil, err
	}
	real := &side{host: host, client: client, real: true}
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
		if step.method == "SETTLE" {
			lines, err := settle(ctx, real, sim, step.target)
			if err != nil {
				return found, fmt.Errorf("%s: %w", step, err)
			}
			if len(lines) > 0 {
				return append(found, difference{i, lines}), nil
			}
			continue
		}
		want, err := real.do(ctx, step)
		if err != nil {
			return found, fmt.Errorf("%s on the real server: %w", step, err)
		}
		has, err := sim.promptly(ctx, step)
		if err != nil {
			return append(found, difference{i, []string{"sim: " + err.Error()}}), nil
		}
		lines := diffResponses(step, want, has)
		if len(lines) > 0 && isDocumented(step, want, has) {
			return found, nil
		}
		if len(lines) > 0 && isEarlier(step, want, has) {
			if refused(want, has) {
				continue
			}
			return found, nil // as after a documented difference
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
