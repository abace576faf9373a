// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/setpoint-dev/setpoint/tools/internal/licenses"
	"github.com/setpoint-dev/setpoint/tools/internal/modules"
)

// checkLicenses requires that the published modules link only modules with allowed licenses.
func (r release) checkLicenses(ctx context.Context, _ string) ([]string, error) {
	var problems []string
	for _, dir := range r.published {
		linked, err := licenses.Linked(ctx, filepath.Join(r.root, dir), modules.Workspace(dir))
		if err != nil {
			return nil, err
		}
		for _, p := range licenses.Check(linked) {
			problems = append(problems, fmt.Sprintf("The module in %s links %s.", dir, p))
		}
	}
	return problems, nil
}
