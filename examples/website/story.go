// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/examples/website/api/v1alpha1"
	"github.com/setpoint-dev/setpoint/examples/website/operator"
)

// story is the life of one Website from a user's view. It only does what a user with kubectl could
// do.
type story struct {
	table        *table
	client       *client.Client
	websites     *cache.Handle[*v1.Website]
	firstVersion *cache.Handle[*v1alpha1.Website]
	configMaps   *cache.Handle[*corev1.ConfigMap]
	services     *cache.Handle[*corev1.Service]
	deployments  *cache.Handle[*appsv1.Deployment]
	site         types.NamespacedName
}

func newStory(t *table, c *client.Client, view *cache.Cache, namespace string) *story {
	return &story{
		table:        t,
		client:       c,
		websites:     cache.For[*v1.Website](view),
		firstVersion: cache.For[*v1alpha1.Website](view),
		configMaps:   cache.For[*corev1.ConfigMap](view),
		services:     cache.For[*corev1.Service](view),
		deployments:  cache.For[*appsv1.Deployment](view),
		site:         types.NamespacedName{Namespace: namespace, Name: "hello"},
	}
}

func (s *story) tell(ctx context.Context) error {
	if err := s.create(ctx, 2, "<h1>Hello</h1>"); err != nil {
		return err
	}
	if err := s.change(ctx, 3, "<h1>Hello, world</h1>"); err != nil {
		return err
	}
	if err := s.refuse(ctx, "<script>alert(1)</script>"); err != nil {
		return err
	}
	if err := s.convert(ctx, "<h1>Hello, world</h1>"); err != nil {
		return err
	}
	return s.remove(ctx)
}

func (s *story) create(ctx context.Context, servers int32, page string) error {
	site, err := client.For[*v1.Website](s.client).Create(ctx, &v1.Website{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.site.Namespace, Name: s.site.Name},
		Spec:       v1.WebsiteSpec{Replicas: &servers, Page: v1.Page{Content: page}},
	})
	if err != nil {
		return fmt.Errorf("creating the Website %s: %w", s.site, err)
	}
	s.table.row("create", "Website %s with %d servers and the page %s", s.site, servers, page)
	if want := s.site.Name + "." + s.site.Namespace + ".svc"; site.Spec.Host != want {
		return fmt.Errorf("the Website %s has the host %q, and not the default %s", s.site, site.Spec.Host, want)
	}
	s.table.row("defaulter", "a webhook has set its host, %s", site.Spec.Host)
	return s.matches(ctx, servers, page)
}

func (s *story) change(ctx context.Context, servers int32, page string) error {
	if err := s.patch(ctx, v1.WebsiteSpec{Replicas: &servers, Page: v1.Page{Content: page}}); err != nil {
		return fmt.Errorf("changing the Website %s: %w", s.site, err)
	}
	s.table.row("change", "the Website now wants %d servers and the page %s", servers, page)
	return s.matches(ctx, servers, page)
}

func (s *story) patch(ctx context.Context, spec v1.WebsiteSpec) error {
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	_, err = client.For[*v1.Website](s.client).Patch(ctx, s.site, types.MergePatchType, patch)
	return err
}

// refuse asks for a page that the validator does not accept.
func (s *story) refuse(ctx context.Context, page string) error {
	err := s.patch(ctx, v1.WebsiteSpec{Page: v1.Page{Content: page}})
	if !apierrors.IsInvalid(err) {
		return fmt.Errorf("the page %s of the Website %s is not refused: %w", page, s.site, err)
	}
	_, reason, _ := strings.Cut(err.Error(), "spec.")
	s.table.row("validator", "a webhook refuses the page %s: spec.%s", page, reason)
	return nil
}

// convert reads the Website in its first version.
func (s *story) convert(ctx context.Context, page string) error {
	err := await(ctx, s.firstVersion, s.site, func(site *v1alpha1.Website, found bool) error {
		if !found || site.Spec.Content != page {
			return errors.New("as v1alpha1, it does not have the page")
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.table.row("conversion", "a webhook moves the page to spec.content for clients of v1alpha1")
	return nil
}

// matches waits until the cluster matches the spec, part by part.
func (s *story) matches(ctx context.Context, servers int32, page string) error {
	err := await(ctx, s.configMaps, s.named(s.site.Name+"-content"), func(cm *corev1.ConfigMap, found bool) error {
		if !found || cm.Data["index.html"] != page {
			return errors.New("it does not have the page")
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.table.row("ConfigMap", "%s-content has the page", s.site.Name)
	if err := await(ctx, s.services, s.site, exists[*corev1.Service]); err != nil {
		return err
	}
	s.table.row("Service", "%s leads to the servers", s.site.Name)
	if err := await(ctx, s.configMaps, s.named(operator.IndexName), s.listed(true)); err != nil {
		return err
	}
	s.table.row("index", "%s lists the site", operator.IndexName)
	err = await(ctx, s.deployments, s.site, func(d *appsv1.Deployment, found bool) error {
		if !found || *d.Spec.Replicas != servers || d.Status.ReadyReplicas != servers {
			return fmt.Errorf("it does not have %d ready servers", servers)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.table.row("Deployment", "%s has %d servers, all ready", s.site.Name, servers)
	return s.ready(ctx, servers)
}

// ready waits until the operator reports Ready for the current generation of the spec.
func (s *story) ready(ctx context.Context, servers int32) error {
	var message string
	err := await(ctx, s.websites, s.site, func(site *v1.Website, found bool) error {
		if !found {
			return errors.New("it does not exist")
		}
		ready := meta.FindStatusCondition(site.Status.Conditions, v1.ConditionReady)
		switch {
		case ready == nil || site.Status.ObservedGeneration != site.Generation:
			return errors.New("the operator has not reported on it")
		case ready.Status != metav1.ConditionTrue || site.Status.ReadyReplicas != servers:
			return fmt.Errorf("it is not ready: %s", ready.Message)
		}
		message = ready.Message
		return nil
	})
	if err != nil {
		return err
	}
	s.table.row("status", "Ready is True: %s", message)
	return nil
}

func (s *story) remove(ctx context.Context) error {
	if err := client.For[*v1.Website](s.client).Delete(ctx, s.site); err != nil {
		return fmt.Errorf("deleting the Website %s: %w", s.site, err)
	}
	s.table.row("delete", "the Website is asked to go; its finalizer holds it")
	if err := await(ctx, s.configMaps, s.named(operator.IndexName), s.listed(false)); err != nil {
		return err
	}
	s.table.row("finalizer", "%s no longer lists the site", operator.IndexName)
	if err := await(ctx, s.websites, s.site, gone[*v1.Website]); err != nil {
		return err
	}
	s.table.row("gone", "the Website")
	err := errors.Join(
		await(ctx, s.configMaps, s.named(s.site.Name+"-content"), gone[*corev1.ConfigMap]),
		await(ctx, s.services, s.site, gone[*corev1.Service]),
		await(ctx, s.deployments, s.site, gone[*appsv1.Deployment]),
	)
	if err != nil {
		return err
	}
	s.table.row("collected", "the ConfigMap, the Service and the Deployment, by the garbage collector")
	return nil
}

func (s *story) named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.site.Namespace, Name: name}
}

func (s *story) listed(want bool) func(*corev1.ConfigMap, bool) error {
	return func(index *corev1.ConfigMap, found bool) error {
		listed := found && index.Data[s.site.Name] != ""
		switch {
		case want && !listed:
			return errors.New("it does not list the site")
		case listed && !want:
			return errors.New("it still lists the site")
		}
		return nil
	}
}

func exists[T client.Object](_ T, found bool) error {
	if !found {
		return errors.New("it does not exist")
	}
	return nil
}

func gone[T client.Object](_ T, found bool) error {
	if found {
		return errors.New("it still exists")
	}
	return nil
}
