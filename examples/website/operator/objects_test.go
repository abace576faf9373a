// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
)

func site(replicas *int32, content string) *v1.Website {
	return &v1.Website{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "hello", UID: "1-2-3", Generation: 4},
		Spec:       v1.WebsiteSpec{Replicas: replicas, Page: v1.Page{Content: content}},
	}
}

func TestReplicas(t *testing.T) {
	for name, c := range map[string]struct {
		given *int32
		want  int32
	}{
		"not set":               {nil, 1},
		"none, to take it down": {new(int32(0)), 0},
		"some":                  {new(int32(7)), 7},
	} {
		t.Run(name, func(t *testing.T) {
			if got := *deployment(site(c.given, "x")).Spec.Replicas; got != c.want {
				t.Errorf("the Deployment has %d replicas, want %d", got, c.want)
			}
		})
	}
}

// The page reaches the server: the ConfigMap has it under the file name in the probe, and the pods
// mount that ConfigMap in the served directory.
func TestContentIsServed(t *testing.T) {
	s := site(nil, "<h1>hi</h1>")
	cm, pod := configMap(s), deployment(s).Spec.Template.Spec
	if got := cm.Data[page]; got != "<h1>hi</h1>" {
		t.Errorf("the ConfigMap's %s is %q", page, got)
	}
	if got := *pod.Volumes[0].ConfigMap.Name; got != *cm.Name {
		t.Errorf("the pods mount the ConfigMap %s, want %s", got, *cm.Name)
	}
	c := pod.Containers[0]
	if *c.VolumeMounts[0].Name != *pod.Volumes[0].Name || *c.VolumeMounts[0].MountPath != c.Command[len(c.Command)-1] {
		t.Errorf("the volume is not mounted where %v serves from", c.Command)
	}
	if got := *c.ReadinessProbe.HTTPGet.Path; got != "/"+page {
		t.Errorf("the probe asks for %s, want /%s", got, page)
	}
}

// A new page changes the pod template, so that the Deployment rolls it out. The same page does not.
func TestContentChangesThePodTemplate(t *testing.T) {
	of := func(content string) string {
		return deployment(site(nil, content)).Spec.Template.Annotations[hashAnnotation]
	}
	if first, again := of("a"), of("a"); first != again {
		t.Error("the same page gave two pod templates")
	}
	if of("a") == of("b") {
		t.Error("two pages gave the same pod template")
	}
}

// The Service and the Deployment select the pods of this site only.
func TestSelectorsMeetThePods(t *testing.T) {
	s := site(nil, "x")
	d, svc := deployment(s), service(s)
	pods := d.Spec.Template.Labels
	if !maps.Equal(svc.Spec.Selector, pods) || !maps.Equal(d.Spec.Selector.MatchLabels, pods) {
		t.Errorf("pods have %v, the Service selects %v, the Deployment %v", pods, svc.Spec.Selector, d.Spec.Selector.MatchLabels)
	}
	other := site(nil, "x")
	other.Name = "other"
	if maps.Equal(labels(other), pods) {
		t.Error("two sites share their labels")
	}
	if got, want := svc.Spec.Ports[0].TargetPort.StrVal, *d.Spec.Template.Spec.Containers[0].Ports[0].Name; got != want {
		t.Errorf("the Service leads to the port %s, the server has %s", got, want)
	}
}

func TestEverythingIsInTheSameNamespace(t *testing.T) {
	s := site(nil, "x")
	for kind, meta := range map[string]*metaac.ObjectMetaApplyConfiguration{
		"ConfigMap":  configMap(s).ObjectMetaApplyConfiguration,
		"Service":    service(s).ObjectMetaApplyConfiguration,
		"Deployment": deployment(s).ObjectMetaApplyConfiguration,
	} {
		if *meta.Namespace != s.Namespace {
			t.Errorf("%s is in the namespace %s, want %s", kind, *meta.Namespace, s.Namespace)
		}
	}
}

// The ConfigMap with the page never has the name of the index, even for a site with a similar name.
func TestContentIsNotTheIndex(t *testing.T) {
	s := site(nil, "x")
	s.Name = IndexName
	if contentName(s) == IndexName {
		t.Errorf("the page of %s would overwrite the index", s.Name)
	}
}
