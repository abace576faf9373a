// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
)

// asMain in the environment makes the test binary the program itself.
const asMain = "WEBSITE_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// execute runs the program in this process.
func execute(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

// masked is what the program prints, without times, addresses and generated names.
func masked(stdout string) string {
	for pattern, mask := range map[string]string{
		`(?m)^ *\d+\.\d\d s`:         "TIME",
		`https?://127\.0\.0\.1:\d+`:  "URL",
		`website-demo-[a-z0-9]{5}\b`: "NAMESPACE",
	} {
		stdout = regexp.MustCompile(pattern).ReplaceAllString(stdout, mask)
	}
	return stdout
}

// told is what -once prints after its first line, wherever it runs.
const told = `    time  step           what happened
TIME  API server     URL answers
TIME  CRD            websites.web.example.com is served
TIME  webhooks       URL sets defaults, validates and converts
TIME  no kubelet     no node, so no server really runs: a stand-in reports each as ready
TIME  operator       website-operator is ready
TIME  create         Website NAMESPACE/hello with 2 servers and the page <h1>Hello</h1>
TIME  defaulter      a webhook has set its host, hello.NAMESPACE.svc
TIME  ConfigMap      hello-content has the page
TIME  Service        hello leads to the servers
TIME  index          website-index lists the site
TIME  Deployment     hello has 2 servers, all ready
TIME  status         Ready is True: 2 of 2 servers are ready
TIME  change         the Website now wants 3 servers and the page <h1>Hello, world</h1>
TIME  ConfigMap      hello-content has the page
TIME  Service        hello leads to the servers
TIME  index          website-index lists the site
TIME  Deployment     hello has 3 servers, all ready
TIME  status         Ready is True: 3 of 3 servers are ready
TIME  validator      a webhook refuses the page <script>alert(1)</script>: spec.page.content: Forbidden: a page must not have scripts
TIME  conversion     a webhook moves the page to spec.content for clients of v1alpha1
TIME  delete         the Website is asked to go; its finalizer holds it
TIME  finalizer      website-index no longer lists the site
TIME  gone           the Website
TIME  collected      the ConfigMap, the Service and the Deployment, by the garbage collector
TIME  stopped        all that was started; nothing is left
`

// wantStory checks that the first line names the place, and that the story follows.
func wantStory(t *testing.T, stdout, place string) {
	t.Helper()
	first, rest, _ := strings.Cut(masked(stdout), "\n")
	if first != "This runs on "+place+"." {
		t.Errorf("the first line is %q, want the place %q", first, place)
	}
	if rest != told {
		t.Errorf("it printed\n%s\nwant\n%s", rest, told)
	}
}

// wantSentence checks that stderr is one line that names the program and has all words. It ignores
// the progress of a first build of the control plane.
func wantSentence(t *testing.T, stderr string, words ...string) {
	t.Helper()
	stderr = withoutProgress(stderr)
	if !strings.HasPrefix(stderr, "website: ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("want one line, got:\n%s", stderr)
	}
	for _, w := range words {
		if !strings.Contains(stderr, w) {
			t.Errorf("%q is not in: %s", w, stderr)
		}
	}
}

func withoutProgress(stderr string) string {
	return regexp.MustCompile(`(?m)^setpoint: .*\n`).ReplaceAllString(stderr, "")
}

// The story is the same on the sim, on a control plane, and in TestYourCluster.
func TestOnce(t *testing.T) {
	for place, args := range map[string][]string{
		"envtest/sim, an API server in memory; -cluster uses a real control plane":                     {"-once"},
		"a real control plane: etcd, kube-apiserver and kube-controller-manager, on this machine only": {"-once", "-cluster"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			code, stdout, stderr := execute(t.Context(), args...)
			if code != exitOK {
				t.Fatalf("exit status %d\n%s\n%s", code, stdout, stderr)
			}
			if warnings := withoutProgress(stderr); warnings != "" {
				t.Errorf("beside the table it printed:\n%s", warnings)
			}
			wantStory(t, stdout, place)
		})
	}
}

func TestBadInput(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		args  []string
		code  int
		words []string
	}{
		"unknown flag":           {[]string{"-twice"}, exitUsage, []string{"-twice", "-help"}},
		"unknown argument":       {[]string{"once"}, exitUsage, []string{`"once"`, "-help"}},
		"two places":             {[]string{"-cluster", "-kubeconfig", "testdata/dead.kubeconfig"}, exitUsage, []string{"-cluster", "-kubeconfig", "omit one"}},
		"port taken":             {[]string{"-http", taken.Addr().String()}, exitFailure, []string{taken.Addr().String(), "is taken", "-http"}},
		"address of no use":      {[]string{"-http", "nowhere"}, exitFailure, []string{"nowhere", "-http"}},
		"port for webhooks":      {[]string{"-webhooks", taken.Addr().String()}, exitFailure, []string{taken.Addr().String(), "is taken", "-webhooks"}},
		"no such kubeconfig":     {[]string{"-kubeconfig", "no/such/file"}, exitFailure, []string{"no/such/file", "-kubeconfig"}},
		"kubeconfig is not YAML": {[]string{"-kubeconfig", write("bad", "{")}, exitFailure, []string{filepath.Join(dir, "bad")}},
		"nobody there":           {[]string{"-kubeconfig", "testdata/dead.kubeconfig"}, exitFailure, []string{"https://127.0.0.1:1", "refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := execute(t.Context(), c.args...)
			if code != c.code {
				t.Errorf("exit status %d, want %d\n%s", code, c.code, stdout)
			}
			wantSentence(t, stderr, c.words...)
		})
	}
}

// The operator writes the status, so it could only retry.
func TestCRDWithoutStatus(t *testing.T) {
	file := filepath.Join(t.TempDir(), "crd.yaml")
	without := bytes.Replace(builtinCRD, []byte("    subresources:\n      status: {}\n"), nil, 1)
	if err := os.WriteFile(file, without, 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := execute(t.Context(), "-once", "-crd", file)
	if code != exitFailure {
		t.Errorf("exit status %d", code)
	}
	wantSentence(t, stderr, file, "does not serve the status of Website", "enable the status subresource", "kubectl apply -k config/crd")
}

// Your cluster continues to run. Everything that the program created there is gone, except the CRD.
func TestYourCluster(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{Controllers: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	}()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	t.Run("CRD not installed", func(t *testing.T) {
		code, _, stderr := execute(t.Context(), "-kubeconfig", kubeconfig)
		if code != exitFailure {
			t.Errorf("exit status %d", code)
		}
		wantSentence(t, stderr, cluster.Config().Host, "Website", "kubectl apply -k config/crd", "-crd")
	})
	t.Run("CRD file is not a CRD", func(t *testing.T) {
		for file, words := range map[string][]string{
			"no/such/crd.yaml":            {"no/such/crd.yaml"},
			"go.mod":                      {"go.mod"},
			"config/samples/website.yaml": {"config/samples/website.yaml", "not a CustomResourceDefinition"},
			"testdata/invalid_crd.yaml": {"testdata/invalid_crd.yaml", "websites.web.example.com", "correct these fields", "[" +
				"spec.validation.openAPIV3Schema.properties[any].items.additionalProperties.type: Required value: must not be empty for specified object fields, " +
				"spec.validation.openAPIV3Schema.properties[any].items.type: Required value: must not be empty for specified array items, " +
				"spec.validation.openAPIV3Schema.properties[list].items: Required value: must be specified, " +
				"spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields, " +
				"spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root]"},
		} {
			for _, place := range [][]string{{"-kubeconfig", kubeconfig}, {"-once"}} {
				code, _, stderr := execute(t.Context(), append(place, "-crd", file)...)
				if code != exitFailure {
					t.Errorf("%s: exit status %d", file, code)
				}
				wantSentence(t, stderr, words...)
			}
		}
	})
	t.Run("once", func(t *testing.T) {
		code, stdout, stderr := execute(t.Context(), "-once", "-kubeconfig", kubeconfig, "-crd", "config/crd/web.example.com_websites.yaml")
		if code != exitOK {
			t.Fatalf("exit status %d\n%s\n%s", code, stdout, stderr)
		}
		wantStory(t, stdout, "your cluster, of the kubeconfig "+kubeconfig)
		wantNamespacesGone(t, cluster)
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, interrupt := context.WithCancelCause(t.Context())
		out := &trigger{on: "create", do: func() { interrupt(errors.New("interrupted by the test")) }}
		var errs bytes.Buffer
		code := run(ctx, []string{"-once", "-kubeconfig", kubeconfig}, out, &errs)
		if code != exitInterrupted {
			t.Errorf("exit status %d\n%s", code, out.String())
		}
		wantSentence(t, errs.String(), "interrupted by the test")
		wantNamespacesGone(t, cluster)
		wantNoWebhooks(t, cluster)
	})
	t.Run("until Ctrl-C", func(t *testing.T) {
		ctx, interrupt := context.WithCancelCause(t.Context())
		out := &trigger{on: "Ctrl-C stops", do: func() { interrupt(errors.New("interrupted by the test")) }}
		var errs bytes.Buffer
		code := run(ctx, []string{"-kubeconfig", kubeconfig, "-http", "127.0.0.1:0"}, out, &errs)
		if code != exitInterrupted {
			t.Errorf("exit status %d\n%s", code, out.String())
		}
		wantSentence(t, errs.String(), "interrupted by the test")
		if !strings.Contains(out.String(), "export KUBECONFIG="+kubeconfig) {
			t.Errorf("the kubeconfig is not in:\n%s", out.String())
		}
	})
}

// wantNamespacesGone waits until no namespace of a story is left.
func wantNamespacesGone(t *testing.T, cluster *envtest.Cluster) {
	t.Helper()
	c, err := client.New(cluster.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	view := cache.New(c, cache.Options{})
	namespaces := cache.For[*corev1.Namespace](view)
	err = beside(t.Context(), func(ctx context.Context) error {
		all, err := namespaces.List(ctx, cache.ListOptions{})
		for _, ns := range all {
			if strings.HasPrefix(ns.Name, "website-demo-") {
				err = errors.Join(err, await(ctx, namespaces, types.NamespacedName{Name: ns.Name}, gone[*corev1.Namespace]))
			}
		}
		return err
	}, view.Run)
	if err != nil {
		t.Error(err)
	}
}

// wantNoWebhooks checks that the API server calls no webhook, and that the conversion is the one of
// the installed CRD.
func wantNoWebhooks(t *testing.T, cluster *envtest.Cluster) {
	t.Helper()
	c, err := client.New(cluster.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for w, err := range client.For[*admissionregistrationv1.MutatingWebhookConfiguration](c).ListLive(t.Context(), client.ListOptions{}) {
		t.Errorf("%s is left: %v", w.GetName(), err)
	}
	for w, err := range client.For[*admissionregistrationv1.ValidatingWebhookConfiguration](c).ListLive(t.Context(), client.ListOptions{}) {
		t.Errorf("%s is left: %v", w.GetName(), err)
	}
	crd, err := client.ForKind[*unstructured.Unstructured](c, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}).
		GetLive(t.Context(), types.NamespacedName{Name: "websites.web.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	to, _, err := unstructured.NestedMap(crd.Object, "spec", "conversion", "webhook", "clientConfig")
	if err != nil || to["service"] == nil || to["url"] != nil {
		t.Errorf("the conversion calls %v, %v", to, err)
	}
}

// trigger is a writer that calls a function when a text has been written.
type trigger struct {
	bytes.Buffer
	on string
	do func()
}

func (w *trigger) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.on) {
		w.do()
	}
	return n, err
}
