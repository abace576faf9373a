// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// everyController in Options.Controllers enables all controllers.
const everyController = "*"

// enabled reports whether a list such as kube-controller-manager's --controllers enables a name.
func enabled(list []string, name string) bool {
	switch {
	case len(list) == 0 || slices.Contains(list, name):
		return true
	case slices.Contains(list, "-"+name):
		return false
	default:
		return slices.Contains(list, everyController)
	}
}

// validateList returns what is wrong with the form of such a list.
func validateList(list []string) error {
	var wrong []error
	some := len(list) == 0
	for _, name := range list {
		bare := strings.TrimPrefix(name, "-")
		switch {
		case bare == "" || name == "-"+everyController:
			wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: %q is no name, %q (all) or a name after a minus sign", name, everyController))
		case bare != name && slices.Contains(list, bare):
			wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: %q is both enabled and disabled; say one", bare))
		}
		some = some || name == bare
	}
	if !some {
		wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: %q leaves none to run; put %q before it to have all others run", strings.Join(list, ","), everyController))
	}
	return errors.Join(wrong...)
}

// validateNames names what such a list has besides the known names.
func validateNames(list, known []string) error {
	var wrong []error
	for _, name := range list {
		if bare := strings.TrimPrefix(name, "-"); bare != everyController && bare != "" && !slices.Contains(known, bare) {
			wrong = append(wrong, fmt.Errorf("manager.Options.Controllers: no controller is named %q; there are %q", bare, known))
		}
	}
	return errors.Join(wrong...)
}
