// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// find returns the replicas that the flags name.
func (p *plugin) find(ctx context.Context) ([]*replica, error) {
	if len(p.urls) > 0 {
		return p.direct()
	}
	config, err := p.kube.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig: %w", err)
	}
	namespace := p.operatorNamespace
	if namespace == "" {
		if namespace, err = p.namespace(); err != nil {
			return nil, err
		}
	}
	f := &finder{p: p, client: client, namespace: namespace}
	pods, err := f.pods(ctx)
	if err != nil {
		return nil, err
	}
	var replicas []*replica
	for _, pod := range pods {
		switch pod.Status.Phase {
		case corev1.PodRunning: // perhaps not ready: then the answer is more interesting
			replicas = append(replicas, p.forwarded(config, client, pod))
		case corev1.PodSucceeded, corev1.PodFailed:
		default:
			p.diag.line("%s: not asked, because it is %s", pod.Name, cmp.Or(pod.Status.Phase, corev1.PodPending))
		}
	}
	if len(replicas) == 0 {
		return nil, fmt.Errorf("no Pod runs in the namespace %s for %s", namespace, f.what)
	}
	return replicas, nil
}

// direct returns the replicas of --url.
func (p *plugin) direct() ([]*replica, error) {
	var replicas []*replica
	for _, text := range p.urls {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("--url: %q; use a form such as http://localhost:6060", text)
		}
		transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
		replicas = append(replicas, p.replica(u.Host+strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(text, "/"), transport))
	}
	return replicas, nil
}

func (p *plugin) forwarded(config *rest.Config, client *kubernetes.Clientset, pod corev1.Pod) *replica {
	t := &tunnel{config: config, rest: client.CoreV1().RESTClient(), namespace: pod.Namespace, pod: pod.Name, port: p.port}
	r := p.replica(pod.Name, fmt.Sprintf("http://localhost:%d", p.port), &http.Transport{DialContext: t.DialContext})
	r.tunnel = t
	return r
}

// replica returns a replica that cannot redirect the plugin to another server.
func (p *plugin) replica(name, base string, transport *http.Transport) *replica {
	return &replica{name: name, base: base, timeout: p.timeout, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// finder finds Pods in one namespace.
type finder struct {
	p         *plugin
	client    kubernetes.Interface
	namespace string
	what      string // what was looked for, for errors
}

// pods returns the Pods that the flags name, in any phase.
func (f *finder) pods(ctx context.Context) ([]corev1.Pod, error) {
	switch {
	case f.p.selector != "":
		f.what = "--selector " + f.p.selector
		if _, err := labels.Parse(f.p.selector); err != nil {
			return nil, fmt.Errorf("--selector: %w", err)
		}
		pods, err := f.client.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{LabelSelector: f.p.selector})
		if err != nil {
			return nil, f.explain(err, "list", "pods")
		}
		return pods.Items, nil
	case f.p.in != "":
		f.what = "--in " + f.p.in
		return f.inWorkload(ctx, f.p.in)
	}
	name := f.p.lease
	if name == "" {
		var err error
		if name, err = f.guess(ctx); err != nil {
			return nil, err
		}
	}
	f.what = "the Lease " + name
	return f.ofLease(ctx, name)
}

// explain names the missing right.
func (f *finder) explain(err error, verb, resource string) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("you may not %s %s in the namespace %s; grant the verb %s on %s there, or use --url with kubectl port-forward", verb, resource, f.namespace, verb, resource)
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w in the namespace %s", err, f.namespace)
	}
	return err
}
