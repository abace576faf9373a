// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/why"
)

// action changes an annotation of an object, or asks the replicas to act on a key.
type action struct {
	*plugin

	name, short, annotation string
	remove                  bool   // the annotation
	then                    string // what the operator does

	controller, key string // flags
}

func (p *plugin) actionCommands() (all []*cobra.Command) {
	for _, a := range []*action{
		{name: "requeue", short: "Make an object due now", annotation: controller.RequeueAnnotation, then: "its operator reconciles it now"},
		{name: "pause", short: "Stop Reconciles of an object", annotation: controller.PausedAnnotation, then: "its operator reconciles it no more, until kubectl setpoint resume"},
		{name: "resume", short: "End the pause of an object", annotation: controller.PausedAnnotation, remove: true, then: "its operator reconciles it again"},
	} {
		a.plugin = p
		all = append(all, a.command())
	}
	return all
}

func (a *action) command() *cobra.Command {
	c := &cobra.Command{
		Use:   a.name + " KIND [NAMESPACE/]NAME",
		Short: a.short,
		Long: fmt.Sprintf(`%s, with the annotation %s.

You need the verb patch on the object. The operator need not run, and the annotation outlasts its
replicas. KIND and NAME are as in why. The plugin does not wait; ask why for the effect.

For a key that is no object, name the key as failing shows it, with --controller and --key. The
plugin then asks the replicas, which must have debug.Options.Actions. Such a pause ends with the
replica's lead.`, a.short, a.annotation),
		Example: fmt.Sprintf(`  kubectl setpoint %s website shop/web
  kubectl setpoint %[1]s --controller website --key nightly --lease website-operator`, a.name),
		Args: cobra.MaximumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && a.controller+a.key == "":
				return a.annotate(c.Context(), args)
			case len(args) == 0 && a.controller != "" && a.key != "":
				return a.post(c.Context())
			}
			return errors.New("name an object, such as website shop/web, or a key with --controller and --key")
		},
	}
	c.Flags().StringVar(&a.controller, "controller", "", "The controller of --key")
	c.Flags().StringVar(&a.key, "key", "", "A key that is no object")
	return c
}

// annotate changes the object through the API server, which authorizes and audits the user.
func (a *action) annotate(ctx context.Context, args []string) error {
	o, err := a.object(args)
	if err != nil {
		return err
	}
	m, err := a.mapping(o.Kind)
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster has no kind %q; use a kind or resource such as website or Website.example.com", o.Kind)
	case err != nil:
		return fmt.Errorf("the API server does not answer: %w", err)
	case m.Scope.Name() == meta.RESTScopeNameRoot:
		o.Namespace = ""
	case o.Namespace == "":
		return fmt.Errorf("%s are namespaced; use a form such as %s shop/%s", m.Resource.Resource, o.Kind, o.Name)
	}
	config, err := a.kube.ToRESTConfig()
	if err != nil {
		return fmt.Errorf("the kubeconfig: %w", err)
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("the kubeconfig: %w", err)
	}
	var value any // null removes the annotation
	if !a.remove {
		value = time.Now().UTC().Format(time.RFC3339Nano) // a requeue needs another value each time
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{a.annotation: value}}})
	if err != nil {
		return err
	}
	got, err := client.Resource(m.Resource).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-setpoint"})
	if err != nil {
		return explainPatch(err, m, o)
	}
	if a.output == "json" {
		return a.out.json(map[string]any{"object": o, "annotation": a.annotation, "value": value, "resourceVersion": got.ResourceVersion})
	}
	has, then := "the annotation "+a.annotation, a.then
	if a.remove {
		has = "no annotation " + a.annotation
	}
	if paused := got.Annotations[controller.PausedAnnotation]; a.name == "requeue" && paused != "" && paused != "false" {
		then = "it is paused, and its operator reconciles it after kubectl setpoint resume"
	}
	a.out.line("%s has %s; %s", o, has, then)
	return nil
}

func explainPatch(err error, m *meta.RESTMapping, o why.Object) error {
	resource, in := m.Resource.GroupResource().String(), ""
	if o.Namespace != "" {
		in = " in the namespace " + o.Namespace
	}
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not patch %s %q%s; grant the verb patch on %s there", resource, o.Name, in, resource)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no %s %q%s; check the name, and the namespace with -n", resource, o.Name, in)
	}
	return err
}

// post asks all replicas. Only the one that reconciles the key acts.
func (a *action) post(ctx context.Context) error {
	body, err := json.Marshal(map[string]string{"controller": a.controller, "key": a.key})
	if err != nil {
		return err
	}
	all, err := findAndAsk[struct{ Result string }](ctx, a.plugin, func(ctx context.Context, r *replica) (json.RawMessage, error) {
		return r.send(ctx, http.MethodPost, "/debug/"+a.name, strings.NewReader(string(body)))
	})
	for _, r := range all {
		if a.output == "" {
			a.out.line("%s: %s", r.replica, cmp.Or(r.value.Result, "done"))
		}
	}
	return err
}
