// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/setpoint-dev/setpoint/server"
)

type listener struct {
	field string
	o     server.Options
}

func validateListeners(all []listener) error {
	var wrong []error
	for i, a := range all {
		if err := a.o.Validate(); err != nil {
			wrong = append(wrong, fmt.Errorf("manager.Options.%s: %w", a.field, err))
		}
		for _, b := range all[i+1:] {
			if sameAddress(a.o.Address, b.o.Address) {
				wrong = append(wrong, fmt.Errorf("manager.Options.%s and .%s have the same port, %s and %s; give each one of its own", a.field, b.field, a.o.Address, b.o.Address))
			}
		}
	}
	return errors.Join(wrong...)
}

func sameAddress(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" || portA == "" {
		return false
	}
	every := []string{"", "0.0.0.0", "::"}
	return hostA == hostB || slices.Contains(every, hostA) || slices.Contains(every, hostB)
}
