// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Exit codes.
const (
	exitFine    = 0 // replicas answered, and nothing is wrong
	exitError   = 1 // bad input, or no replica answered
	exitTrouble = 2 // replicas answered, and something is wrong
)

const help = `Ask the replicas of an operator made with Setpoint what they do.

The plugin reads the debug endpoints of every replica, on a port of the pod's loopback interface,
through port-forward. Name the replicas with one of these:

  --lease NAME       the Lease of leader election or of a shard group: the Pods of its Deployment
  --selector app=x   Pods by label
  --in deploy/NAME   the Pods of a deploy, sts, ds or rs, or a single pod/NAME
  --url URL          endpoints that you reach directly; no cluster is needed

Without any, the plugin uses the only shard group of the namespace, or lists the Leases.

Exit codes:
  0  replicas answered, and nothing is wrong
  1  the input is wrong, or no replica answered
  2  replicas answered, and something is wrong (why, failing and rbac only)

All flags of kubectl that choose the cluster and the user work, such as --context, --as and --token.

Rights: get and list pods, get leases and the owner of the Pods (deployments, replicasets),
create and get pods/portforward.`

// plugin has the flags of all commands.
type plugin struct {
	out, diag printer // standard output, and lines for people on standard error
	kube      *genericclioptions.ConfigFlags

	urls                []string
	lease, selector, in string
	operatorNamespace   string
	port                int
	timeout             time.Duration
	output              string

	trouble bool // a command found that something is wrong
}

// run returns the exit code.
func run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	p := &plugin{out: printer{streams.Out}, diag: printer{streams.ErrOut}, kube: genericclioptions.NewConfigFlags(true)}
	root := p.root() //nolint:contextcheck // cobra passes it to the commands
	root.SetArgs(args)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	err := root.ExecuteContext(ctx)
	switch {
	case err != nil:
		p.diag.line("error: %s", err.Error())
		return exitError
	case p.trouble:
		return exitTrouble
	}
	return exitFine
}

func (p *plugin) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-setpoint",
		Short: "Ask the replicas of a Setpoint operator what they do",
		Long:  help,
		Example: `  kubectl setpoint why website shop/web --lease website-operator
  kubectl setpoint failing -n operators --in deploy/website-operator
  kubectl setpoint top --url http://localhost:6060`,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl setpoint"},
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(*cobra.Command, []string) error { return p.validate() },
	}
	f := root.PersistentFlags()
	f.StringArrayVar(&p.urls, "url", nil, "Ask the endpoints at this address, such as http://localhost:6060; repeatable")
	f.StringVar(&p.lease, "lease", "", "Ask the Pods that share this Lease")
	f.StringVarP(&p.selector, "selector", "l", "", "Ask the Pods with these labels")
	f.StringVar(&p.in, "in", "", "Ask the Pods of this workload, such as deploy/NAME, or pod/NAME")
	f.StringVar(&p.operatorNamespace, "operator-namespace", "", "Namespace of the operator (default: the one of --namespace)")
	f.IntVar(&p.port, "port", 6060, "Port of the debug endpoints in the pod")
	f.DurationVar(&p.timeout, "timeout", 3*time.Second, "How long to wait for each answer")
	f.StringVarP(&p.output, "output", "o", "", "json: the answers of all replicas, for scripts (default: a table)")
	kubectl := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	p.kube.AddFlags(kubectl)
	kubectl.VisitAll(func(flag *pflag.Flag) {
		flag.Hidden = !slices.Contains([]string{"namespace", "context", "kubeconfig"}, flag.Name)
		f.AddFlag(flag)
	})
	root.AddCommand(p.whyCommand(), p.traceCommand(), p.failingCommand(), p.controllersCommand(), p.topCommand(), p.informersCommand(), p.shardsCommand(), p.rbacCommand())
	root.AddCommand(p.actionCommands()...)
	return root
}

// validate checks the flags that all commands have.
func (p *plugin) validate() error {
	ways := 0
	for _, given := range []bool{len(p.urls) > 0, p.lease != "", p.selector != "", p.in != ""} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("--url, --lease, --selector and --in exclude each other; give one")
	case p.output != "" && p.output != "json":
		return fmt.Errorf("--output: %q is unknown; use json, or leave it out for a table", p.output)
	case p.port < 1 || p.port > 65535:
		return fmt.Errorf("--port: %d; use 1 to 65535", p.port)
	case p.timeout <= 0:
		return fmt.Errorf("--timeout: %s; use a positive duration", p.timeout)
	}
	return nil
}

// namespace returns the namespace of -n or of the kubeconfig's context.
func (p *plugin) namespace() (string, error) {
	namespace, _, err := p.kube.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("the kubeconfig: %w", err)
	}
	return namespace, nil
}

// printer writes text from replicas to a terminal. It removes control characters.
type printer struct{ to io.Writer }

// line writes one line.
func (p printer) line(format string, args ...any) {
	fmt.Fprintln(p.to, clean(fmt.Sprintf(format, args...)))
}
