// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/why"
)

func (p *plugin) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "why KIND [NAMESPACE/]NAME",
		Short: "Explain why an object is reconciled or not",
		Long: `Explain why an object is reconciled or not, what helps, and a reason code.

KIND is a kind or resource, such as website, websites or Website.example.com. The namespace is, in
this order: the one before NAME, the one of -n, the one of the kubeconfig's context. An empty one, as
in /NAME, means a cluster-scoped object; with a cluster, the plugin finds that out itself.

The replica that works on the object comes first. Replicas that only stand by have one line each.

Exit code 2 if the first answer is trouble, such as a failure, a pause, or a kind without a
controller. Dropped, Unmapped and OutsideScope are no trouble: the operator ignores the object.`,
		Example: `  kubectl setpoint why website shop/web --lease website-operator --operator-namespace operators
  kubectl setpoint why website/web -n shop --in deploy/website-operator
  kubectl setpoint why website shop/web --url http://localhost:6060 -o json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error { return p.why(c.Context(), args) },
	}
}

func (p *plugin) why(ctx context.Context, args []string) error {
	o, replicas, err := p.objectAndReplicas(ctx, args)
	if err != nil {
		return err
	}
	query := url.Values{"kind": {o.Kind}, "namespace": {o.Namespace}, "name": {o.Name}}
	all, err := ask[why.Answers](ctx, p, replicas, path("/debug/why", query))
	if err != nil {
		return err
	}
	merged := merge(all)
	p.trouble = merged.first().Trouble()
	if p.output == "" {
		merged.print(p.out)
	}
	return nil
}

// objectAndReplicas returns the object of the arguments, with its kind, and the replicas.
func (p *plugin) objectAndReplicas(ctx context.Context, args []string) (o why.Object, replicas []*replica, err error) {
	if o, err = p.object(args); err != nil {
		return o, nil, err
	}
	if replicas, err = p.find(ctx); err != nil {
		return o, nil, err
	}
	if len(p.urls) == 0 {
		p.resolve(&o, !strings.Contains(args[len(args)-1], "/") || len(args) == 1)
	}
	return o, replicas, nil
}

// object reads KIND NAME, KIND NAMESPACE/NAME or KIND/NAME.
func (p *plugin) object(args []string) (why.Object, error) {
	kind, name := args[0], ""
	if len(args) == 2 {
		name = args[1]
	} else {
		kind, name, _ = strings.Cut(args[0], "/")
	}
	o := why.Object{Kind: kind, Name: name}
	var given bool
	if len(args) == 2 {
		if o.Namespace, o.Name, given = strings.Cut(name, "/"); !given {
			o.Namespace, o.Name = "", name
		}
	}
	if o.Kind == "" || o.Name == "" || strings.Contains(o.Kind+o.Name, "/") {
		return o, fmt.Errorf("%q names no object; use a form such as website shop/web, or website/web -n shop", strings.Join(args, " "))
	}
	if given {
		return o, nil
	}
	namespace, err := p.namespace()
	if err != nil && len(p.urls) > 0 { // then a broken kubeconfig does not matter
		return o, errors.New("the namespace is unknown; use NAMESPACE/NAME")
	}
	o.Namespace = namespace
	return o, err
}

// resolve replaces a short name, such as deploy, by the kind. If the namespace was implied, a
// cluster-scoped object loses it. Without an answer of the API server, the object stays as it is.
func (p *plugin) resolve(o *why.Object, implied bool) {
	mapping, err := p.mapping(o.Kind)
	if err != nil {
		return
	}
	kind := mapping.GroupVersionKind
	if implied && mapping.Scope.Name() == meta.RESTScopeNameRoot {
		o.Namespace = ""
	}
	if !o.Is(kind) {
		o.Kind = strings.TrimSuffix(kind.Kind+"."+kind.Group, ".")
	}
}

// mapping asks the API server about a kind or resource.
func (p *plugin) mapping(text string) (*meta.RESTMapping, error) {
	mapper, err := p.kube.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	full, resource := schema.ParseResourceArg(strings.ToLower(text))
	kind := schema.GroupVersionKind{}
	if full != nil {
		kind, _ = mapper.KindFor(*full) // the zero kind if there is none
	}
	if kind.Empty() {
		if kind, err = mapper.KindFor(resource.WithVersion("")); err != nil {
			return nil, err
		}
	}
	return mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

// merged are the answers of all replicas.
type merged struct {
	parts   []part // the most important one first
	standby []part // of replicas that leave the object to another one
}

// part is the same answers of some replicas.
type part struct {
	replicas []string
	answers  []why.Answer
}

// merge puts a replica that has the object's key first, and then one with trouble. If all
// replicas only stand by, these answers count.
func merge(all []got[why.Answers]) merged {
	var m merged
	for _, r := range all {
		var acts, waits []why.Answer
		for _, a := range r.value.Answers {
			if standsBy(a) {
				waits = append(waits, a)
			} else {
				acts = append(acts, a)
			}
		}
		m.parts = with(m.parts, r.replica, acts)
		m.standby = with(m.standby, r.replica, waits)
	}
	if len(m.parts) == 0 {
		m.parts, m.standby = m.standby, nil
	}
	slices.SortStableFunc(m.parts, func(a, b part) int { return cmp.Compare(a.rank(), b.rank()) })
	return m
}

func standsBy(a why.Answer) bool { return a.Reason == why.NotLeading || a.Reason == why.OtherMember }

// with adds a replica to the part with the same answers, or to a new one.
func with(parts []part, replica string, answers []why.Answer) []part {
	if len(answers) == 0 {
		return parts
	}
	text := why.Answers{Answers: answers}.String()
	for i := range parts {
		if (why.Answers{Answers: parts[i].answers}).String() == text {
			parts[i].replicas = append(parts[i].replicas, replica)
			return parts
		}
	}
	return append(parts, part{[]string{replica}, answers})
}

func (p part) rank() int {
	rank := 0
	if !slices.ContainsFunc(p.answers, func(a why.Answer) bool { return a.Key != "" }) {
		rank = 2
	}
	if !p.answers[0].Reason.Trouble() {
		rank++
	}
	return rank
}

// first returns the reason of the first answer.
func (m merged) first() why.Reason {
	if len(m.parts) == 0 {
		return why.NotWatched
	}
	return m.parts[0].answers[0].Reason
}

func (m merged) print(to printer) {
	for _, p := range m.parts {
		to.line("%s:", strings.Join(p.replicas, ", "))
		for _, a := range p.answers {
			for line := range strings.Lines(oneLined(a).String()) {
				to.line("%s", strings.TrimSuffix(line, "\n"))
			}
		}
	}
	for _, p := range m.standby {
		for _, a := range p.answers {
			to.line("%s: %s%s (%s)", strings.Join(p.replicas, ", "), prefix(a), a.Cause, a.Reason)
		}
	}
	if len(m.parts)+len(m.standby) == 0 {
		to.line("no answer has a cause")
	}
}

func prefix(a why.Answer) string {
	if a.Controller == "" {
		return ""
	}
	return a.Controller + ": "
}

// oneLined returns an answer whose texts cannot look like further lines. String does it for the
// others.
func oneLined(a why.Answer) why.Answer {
	a.Reason = why.Reason(clean(string(a.Reason)))
	a.Controller, a.Key = clean(a.Controller), clean(a.Key)
	return a
}
