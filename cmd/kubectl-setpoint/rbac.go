// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/setpoint-dev/setpoint/rbac"
)

func (p *plugin) rbacCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rbac",
		Short: "Print the Roles that the operator needs and uses",
		Long: `Print the Roles that the operator needs and uses, as YAML for kubectl apply.

The rights are the ones that the parts of the operator declare, and the ones of the requests that the
replicas have sent since they started, refused ones included. Comments name what is missing now. What
the operator does rarely may be absent: compare before you replace a Role, such as with kubectl diff.

Exit code 2 if a right is missing.`,
		Example: `  kubectl setpoint rbac --lease website-operator
  kubectl setpoint rbac --in deploy/website-operator | kubectl diff -f -`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return p.rbac(c.Context()) },
	}
}

func (p *plugin) rbac(ctx context.Context) error {
	all, err := findAndAsk[rbac.Report](ctx, p, path("/debug/rbac", nil))
	if err != nil {
		return err
	}
	var merged rbac.Report
	for _, r := range all {
		if r.value.Error != "" {
			p.diag.line("%s: not all rights could be reviewed: %s", r.replica, r.value.Error)
		}
		merged.Add(&r.value)
	}
	p.trouble = len(merged.Missing) > 0
	if p.output != "" {
		return nil
	}
	p.out.line("# %s: rights that it needs, and has used (replicas asked: %d)", merged.Name, len(all))
	for text := range strings.Lines(merged.YAML()) {
		p.out.line("%s", strings.TrimSuffix(text, "\n"))
	}
	return nil
}
