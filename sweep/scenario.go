// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/manifests"
)

// Scenario is an operator, and what others do meanwhile.
type Scenario struct {
	// Scheme has the kinds of the objects, of the steps and of the invariants. Required.
	Scheme *runtime.Scheme
	// Objects exist before the operator starts, such as CustomResourceDefinitions. Default: none.
	Objects []runtime.Object
	// CRDs are files or directories of CustomResourceDefinitions. Default: none; a simulated API
	// server takes other kinds of the scheme for namespaced ones, with the usual plural.
	CRDs []string
	// Operator makes the operator. It is called again after each crash. Required.
	Operator func(p Process) (Operator, error)
	// Beside makes programs that run during the whole scenario without faults, such as a stand-in
	// for the Deployment controller. Default: none.
	Beside []func(p Process) (Program, error)
	// Steps are done one after another, each when the operator is idle. Required.
	Steps []Step
	// Invariants hold at every version. Default: none.
	Invariants []Invariant

	definitions []runtime.Object // of CRDs
}

// Process is what a program gets.
type Process struct {
	// Config reaches the API server. All requests of the program must use it: a client of another
	// configuration survives crashes, and its writes get no faults.
	Config *rest.Config
	// Logger writes to the artefacts of a failed test.
	Logger *slog.Logger
	// ControlPlane means that the API server is a real one, beside Kubernetes' own controllers: see
	// envtest.Options.Controllers.
	ControlPlane bool
}

// Program is a running program, such as a *manager.Manager.
type Program interface {
	// Run returns soon after the end of ctx.
	Run(ctx context.Context) error
}

// Operator is the program under test: a *manager.Manager is one.
type Operator interface {
	Program
	// Idle returns nil when the operator has nothing left to do, or an error.
	Idle(ctx context.Context) error
}

// Step is what a user does.
type Step struct {
	// Name is for reports. Required.
	Name string
	// Do makes the requests. With some faults the operator has not seen the steps before: ignore
	// that an object which it makes is not found. Required.
	Do func(ctx context.Context, c *client.Client) error
}

// Invariant is a condition that always holds.
type Invariant struct {
	// Name is for reports. Required.
	Name string
	// Holds returns nil, or what is wrong. It is called for each version, after the run. Required.
	Holds func(s *State) error
}

func (s *Scenario) readCRDs() error {
	all, err := manifests.Read(s.CRDs...)
	if err != nil {
		return fmt.Errorf("Scenario.CRDs: %w", err)
	}
	s.definitions = nil
	for _, m := range all {
		if m.Object.GetKind() != "CustomResourceDefinition" {
			return fmt.Errorf("Scenario.CRDs: %s is no CustomResourceDefinition but a %s; put it into Scenario.Objects", m.Where, m.Object.GetKind())
		}
		s.definitions = append(s.definitions, m.Object)
	}
	return nil
}

func (s *Scenario) validate() error {
	var errs []error
	require := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New(what))
		}
	}
	require(s.Scheme != nil, "Scenario.Scheme is nil; set the scheme of the operator's kinds")
	require(s.Operator != nil, "Scenario.Operator is nil; set the function that makes the operator")
	require(len(s.Steps) > 0, "Scenario.Steps is empty; add what a user does, such as the creation of an object")
	seen := map[string]bool{}
	for i, step := range s.Steps {
		require(!seen[step.Name], fmt.Sprintf("two Scenario.Steps have the name %q; reports could not tell them apart", step.Name))
		seen[step.Name] = true
		require(step.Name != "" && step.Do != nil, fmt.Sprintf("Scenario.Steps[%d] needs a Name and Do", i))
	}
	for i, program := range s.Beside {
		require(program != nil, fmt.Sprintf("Scenario.Beside[%d] is nil", i))
	}
	for i, v := range s.Invariants {
		require(v.Name != "" && v.Holds != nil, fmt.Sprintf("Scenario.Invariants[%d] needs a Name and Holds", i))
	}
	return errors.Join(errs...)
}
