// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "name what the project in this directory lacks", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			found, err := doctor(c.Context(), ".")
			if err != nil {
				return err
			}
			if len(found) == 0 {
				_, err = fmt.Fprintln(c.OutOrStdout(), "nothing is missing")
				return err
			}
			return fmt.Errorf("%s", strings.Join(found, "\n"))
		},
	}
}

// doctor returns a sentence for each thing that a project lacks.
func doctor(ctx context.Context, dir string) (found []string, err error) {
	p, err := open(dir)
	if err != nil {
		return nil, err
	}
	present, err := p.read()
	if err != nil {
		return nil, err
	}
	kinds, controllers, crds := p.anchors()
	for _, a := range []anchor{kinds, controllers, crds} {
		if !a.line.MatchString(present[a.file]) {
			found = append(found, fmt.Sprintf("%s has no line such as %q: 'setpoint add kind' needs one", a.file, a.like))
		}
	}
	stale, err := p.try(ctx, present, present)
	if err != nil {
		return append(found, err.Error()), nil
	}
	for _, name := range stale.names() {
		found = append(found, fmt.Sprintf("%s is not as the types and markers say; run 'make generate'", name))
	}
	return found, nil
}
