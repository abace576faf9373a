// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// everyController stands in Options.Controllers for all that were added.
const everyController = "*"

// enables says whether a controller of that name is to run. The rules are those of kube-controller-manager's --controllers.
func (o *Options) enables(name string) bool {
	switch {
	case len(o.Controllers) == 0 || slices.Contains(o.Controllers, name):
		return true
	case slices.Contains(o.Controllers, "-"+name):
		return false
	default:
		return slices.Contains(o.Controllers, everyController)
	}
}

// checkControllers says what in Options.Controllers cannot be meant.
func checkControllers(names []string) error {
	var wrong []error
	some := len(names) == 0
	for _, name := range names {
		bare := strings.TrimPrefix(name, "-")
		switch {
		case bare == "" || name == "-"+everyController:
			wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: %q is no name, %q (all) or a name after a minus sign", name, everyController))
		case bare != name && slices.Contains(names, bare):
			wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: %q is both enabled and disabled; say one", bare))
		}
		some = some || name == bare
	}
	if !some {
		wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: %q leaves none to run; put %q before it to have all others run", strings.Join(names, ","), everyController))
	}
	return errors.Join(wrong...)
}

// validateNames says which names in Options.Controllers are of no controller that was added.
func (m *Manager) validateNames() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var known []string
	for _, c := range slices.Concat(m.controllers, m.disabled) {
		known = append(known, c.Name())
	}
	slices.Sort(known)
	var wrong []error
	for _, name := range m.o.Controllers {
		if bare := strings.TrimPrefix(name, "-"); bare != everyController && bare != "" && !slices.Contains(known, bare) {
			wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: no controller is named %q; there are %q", bare, known))
		}
	}
	return errors.Join(wrong...)
}

// disabledNames are those of controllers that were added and do not run.
func (m *Manager) disabledNames() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.disabled {
		names = append(names, c.Name())
	}
	return names
}
