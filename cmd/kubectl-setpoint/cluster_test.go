// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
)

// site is a cluster with one node, and operators in the namespace operators.
type site struct {
	t       *testing.T
	config  *rest.Config
	client  *kubernetes.Clientset
	kubelet *kubelet
	file    string // a kubeconfig
	asked   chan url.Values
}

const (
	leading  = "website-operator-6f9c8d7b5-k8d2p"
	standing = "website-operator-6f9c8d7b5-x2x4z"
)

// TestCluster goes through a real API server, and a stand-in for the kubelet.
func TestCluster(t *testing.T) {
	s := startSite(t)
	t.Run("WhyThroughALease", s.testWhy)
	t.Run("KindsOfTheCluster", s.testKinds)
	t.Run("WaysToFindPods", s.testFind)
	t.Run("NoPod", s.testNoPod)
	t.Run("PodsThatDoNotAnswer", s.testSilent)
	t.Run("FallbackToSPDY", s.testSPDY)
	t.Run("RightsAreNamed", s.testRights)
	t.Run("Actions", s.testActions)
	t.Run("GuideShowsTheOutput", s.testGuide)
}

func startSite(t *testing.T) *site {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	succeed(t, err)
	t.Cleanup(func() {
		testkit.Equal(t, cluster.Stop(), nil)
	})
	s := &site{t: t, config: cluster.Config(), kubelet: startKubelet(t), file: filepath.Join(t.TempDir(), "kubeconfig"), asked: make(chan url.Values, 100)}
	err = cluster.WriteKubeconfig(s.file)
	succeed(t, err)
	s.client, err = kubernetes.NewForConfig(s.config)
	testkit.NoError(t, err)
	core := s.client.CoreV1()
	for _, name := range []string{"shop", "operators", "empty"} {
		_, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		succeed(t, err)
	}
	for _, name := range []string{"web", "broken", "slow", "next"} {
		_, err := core.ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		succeed(t, err)
	}
	node, err := core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, metav1.CreateOptions{})
	succeed(t, err)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = s.kubelet.port()
	_, err = core.Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	succeed(t, err)

	set := s.deploy("website-operator", "6f9c8d7b5")
	s.replica(set, leading, leader)
	eventually(t, "it leads", func() bool {
		l, err := s.client.CoordinationV1().Leases("operators").Get(t.Context(), "website-operator", metav1.GetOptions{})
		return err == nil && holder(l) != ""
	})
	s.replica(set, standing, leader)
	shards := s.deploy("website-shards", "59d7c6f8d")
	s.replica(shards, "website-shards-59d7c6f8d-4hq7v", member)
	s.replica(shards, "website-shards-59d7c6f8d-z9m6k", member)
	eventually(t, "both are members", func() bool {
		out := s.plug(t, "shards", "--in=deploy/website-shards").out
		return strings.Contains(out, " 128-255 ") && strings.Contains(out, " 0-127 ") && !strings.Contains(out, "unserved")
	})
	eventually(t, "the key has failed", func() bool {
		out := s.plug(t, "top", "--lease=website-operator").out
		return strings.Contains(out, "1/2    0       0         1 ")
	})
	return s
}

func succeed(t *testing.T, err error) {
	t.Helper()
	testkit.NoError(t, err)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	end := time.After(30 * time.Second)
	for !is() {
		select {
		case <-end:
			t.Fatalf("not within 30 s: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// deploy creates a Deployment with a ReplicaSet, and returns the ReplicaSet.
func (s *site) deploy(name, hash string) *appsv1.ReplicaSet {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels}, Spec: podSpec()}
	d, err := s.client.AppsV1().Deployments("operators").Create(s.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	succeed(s.t, err)
	r, err := s.client.AppsV1().ReplicaSets("operators").Create(s.t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: name + "-" + hash, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	succeed(s.t, err)
	return r
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "manager", Image: "manager"}}}
}

// pod creates a Pod in a phase, of a ReplicaSet or of none.
func (s *site) pod(of *appsv1.ReplicaSet, name string, phase corev1.PodPhase) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec()}
	if of != nil {
		p.Labels = of.Spec.Template.Labels
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(of, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	}
	p, err := s.client.CoreV1().Pods("operators").Create(s.t.Context(), p, metav1.CreateOptions{})
	succeed(s.t, err)
	p.Status.Phase = phase
	_, err = s.client.CoreV1().Pods("operators").UpdateStatus(s.t.Context(), p, metav1.UpdateOptions{})
	succeed(s.t, err)
}

// replica runs an operator, as a Pod.
func (s *site) replica(of *appsv1.ReplicaSet, pod string, way func(namespace, pod string) manager.Coordinator) {
	s.pod(of, pod, corev1.PodRunning)
	state := operate(s.t, s.config, way("operators", pod))
	s.kubelet.listen(s.t, "operators/"+pod, 6060, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/debug/why" {
			s.asked <- r.URL.Query()
		}
		state.ServeHTTP(w, r)
	}))
}

// plug runs the plugin with the kubeconfig, in the namespace of the operators.
func (s *site) plug(t *testing.T, args ...string) output {
	t.Helper()
	return plug(t, append([]string{"--kubeconfig", s.file, "-n", "operators", "--cache-dir", filepath.Dir(s.file)}, args...)...)
}

func (s *site) testWhy(t *testing.T) {
	before := s.kubelet.count()
	o := s.plug(t, "why", "configmap", "shop/broken", "--lease", "website-operator")
	o.check(t, 2, "and is not retried: spec.domain: not a host name\n", "")
	if !strings.HasPrefix(o.out, leading+":\nwebsite shop/broken: the last Reconcile failed ") ||
		!strings.Contains(o.out, "\n"+standing+": website: this replica does not lead; "+leading+"_5b1f0c1e leads (NotLeading)\n") {
		t.Errorf("got\n%s", o.out)
	}
	testkit.Equal(t, s.kubelet.count()-before, 2, "port-forwards")
}

// testKinds: the API server knows short names, and which kinds have no namespace.
func (s *site) testKinds(t *testing.T) {
	for args, want := range map[string]string{
		"cm shop/web":        "ConfigMap shop web",
		"configmaps web":     "configmaps operators web",
		"deploy shop/web":    "Deployment.apps shop web",
		"node node-1":        "node  node-1",
		"no/node-1":          "Node  node-1",
		"Website shop/web":   "Website shop web",
		"pods.v1. shop/p":    "Pod shop p",
		"websites.x.com web": "websites.x.com operators web",
	} {
		for len(s.asked) > 0 {
			<-s.asked
		}
		s.plug(t, append([]string{"why", "--in", "pod/" + leading}, strings.Fields(args)...)...)
		asked := <-s.asked
		testkit.Equal(t, asked.Get("kind")+" "+asked.Get("namespace")+" "+asked.Get("name"), want, fmt.Sprintf("%q asks for", args))
	}
}

func (s *site) testFind(t *testing.T) {
	for _, way := range []string{"-l=app=website-operator", "--in=deploy/website-operator", "--in=Deployments/website-operator", "--in=rs/website-operator-6f9c8d7b5", "--lease=website-operator"} {
		o := s.plug(t, "top", way)
		if o.code != 0 || !strings.Contains(o.out, leading) || !strings.Contains(o.out, standing) || strings.Contains(o.out, "shards") {
			t.Errorf("%s: %+v", way, o)
		}
	}
	s.plug(t, "top", "--in", "pod/"+standing).check(t, 0, standing, "")
	s.plug(t, "top", "-n", "shop", "--operator-namespace=operators", "--lease=website-operator").check(t, 0, standing, "")
	s.plug(t, "shards").check(t, 0, "website-shards-59d7c6f8d-z9m6k", "asking the Pods that share the Lease website-shards\n")
}

func (s *site) testNoPod(t *testing.T) {
	for flags, want := range map[string]string{
		"-n empty":                 "error: name the replicas in the namespace empty with --lease NAME, --selector app=x or --in deploy/NAME\n",
		"--lease nope":             "error: the namespace operators has no Lease nope; ",
		"--selector app=nope":      "error: no Pod runs in the namespace operators for --selector app=nope\n",
		"--selector a==b==c":       "error: --selector: ",
		"--in deploy/nope":         `error: deployments.apps "nope" not found in the namespace operators`,
		"--in job/nope":            `error: --in: the kind "job" is unknown; use deploy, sts, ds, rs or pod`,
		"--in nope":                `error: --in: "nope"; use a form such as deploy/NAME or pod/NAME`,
		"--context nope --lease x": "error: the kubeconfig: context ",
	} {
		s.plug(t, append([]string{"top"}, strings.Fields(flags)...)...).check(t, 1, "", want)
	}
	l, err := s.client.CoordinationV1().Leases("operators").Get(t.Context(), "website-operator", metav1.GetOptions{})
	succeed(t, err)
	l.Name, l.Namespace, l.ResourceVersion = "gone", "empty", ""
	_, err = s.client.CoordinationV1().Leases("empty").Create(t.Context(), l, metav1.CreateOptions{})
	succeed(t, err)
	l.Name, l.Labels = "member", map[string]string{shard.GroupLabel: "some"}
	_, err = s.client.CoordinationV1().Leases("empty").Create(t.Context(), l, metav1.CreateOptions{})
	succeed(t, err)
	s.plug(t, "top", "-n=empty").check(t, 1, "", "; it has the Leases gone\n")
	s.plug(t, "top", "-n=empty", "--lease=gone").check(t, 1, "", "no Pod in the namespace empty belongs to "+leading+"_5b1f0c1e, which holds the Lease gone\n")
}

func (s *site) testSilent(t *testing.T) {
	set, err := s.client.AppsV1().ReplicaSets("operators").Get(t.Context(), "website-operator-6f9c8d7b5", metav1.GetOptions{})
	succeed(t, err)
	hang := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for name, phase := range map[string]corev1.PodPhase{"hangs": corev1.PodRunning, "stuck": corev1.PodRunning, "deaf": corev1.PodRunning, "early": corev1.PodPending, "over": corev1.PodFailed} {
		s.pod(set, name, phase)
		defer func() {
			_ = s.client.CoreV1().Pods("operators").Delete(t.Context(), name, *metav1.NewDeleteOptions(0))
		}()
	}
	s.kubelet.listen(t, "operators/hangs", 6060, hang)
	o := s.plug(t, "top", "--lease=website-operator", "--timeout=5s")
	o.check(t, 0, leading, "hangs, stuck: no answer within 5s; see --timeout\n")
	o.check(t, 0, standing, "deaf: nothing listens on port 6060 of the pod's loopback interface; ")
	o.check(t, 0, standing, "early: not asked, because it is Pending\n")
	testkit.NotContains(t, o.err, "over", "a failed Pod is mentioned")
	for range 3 { // its two deadlines race
		s.plug(t, "top", "--in=pod/stuck", "--timeout=300ms").check(t, 1, "", "error: no replica answered: stuck: no answer within 300ms; see --timeout\n")
	}
	eventually(t, "no port-forward outlives its command", func() bool {
		stacks := make([]byte, 1<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*tunnel).dial(")
	})
	s.plug(t, "top", "--in=pod/deaf", "--port=7070").check(t, 1, "", "error: no replica answered: deaf: nothing listens on port 7070")
}

// testSPDY: a proxy before the API server refuses WebSockets.
func (s *site) testSPDY(t *testing.T) {
	target, err := url.Parse(s.config.Host)
	succeed(t, err)
	config := rest.CopyConfig(s.config)
	config.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
	transport, err := rest.TransportFor(config)
	succeed(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport}
	refused := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			refused <- struct{}{}
			http.Error(w, "no WebSockets", http.StatusBadRequest)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer server.Close()
	s.plug(t, "top", "--in=pod/"+leading, "--server="+server.URL).check(t, 0, leading, "")
	testkit.Equal(t, len(refused), 1, "WebSockets were tried")
}

// testRights takes one right after the other from a user.
func (s *site) testRights(t *testing.T) {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"create", "get"}},
	}
	meta := metav1.ObjectMeta{Name: "asker", Namespace: "operators"}
	roles := s.client.RbacV1().Roles("operators")
	_, err := roles.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	succeed(t, err)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "asker"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"}},
	}
	_, err = s.client.RbacV1().RoleBindings("operators").Create(t.Context(), binding, metav1.CreateOptions{})
	succeed(t, err)
	ask := func() output { return s.plug(t, "top", "--as=ann", "--lease=website-operator") }
	eventually(t, "the rights suffice", func() bool { return ask().code == 0 })
	for i, want := range []string{
		"error: you may not list pods in the namespace operators; grant the verb list on pods there, ",
		"error: you may not get replicasets in the namespace operators; grant the verb get on replicasets there, ",
		"error: you may not get leases in the namespace operators; grant the verb get on leases there, ",
		"error: no replica answered: " + leading + ", " + standing + ": you may not forward ports; grant the verbs create and get on pods/portforward in the namespace operators\n",
	} {
		fewer := append(append([]rbacv1.PolicyRule{}, rules[:i]...), rules[i+1:]...)
		_, err = roles.Update(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: fewer}, metav1.UpdateOptions{})
		succeed(t, err)
		var o output
		// The API server may apply the role a moment later.
		eventually(t, want, func() bool { o = ask(); return o.code == 1 && strings.Contains(o.err, want) })
		o.check(t, 1, "", want)
		if n := strings.Count(o.err, "\n"); n != 1 {
			t.Errorf("%d lines, want 1:\n%s", n, o.err)
		}
	}
}

const guide = "../../docs/kubectl-setpoint.md"

var (
	example = regexp.MustCompile("(?s)```\n\\$ kubectl setpoint ([^\n]*)\n(.*?)```")
	// varying matches numbers, times, durations, random parts of names, and the spaces between
	// columns.
	varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT\S+|<?\b(\d+(ms|[smhd]))+\b|\b[0-9a-f]{8}\b|4hq7v|z9m6k|\b\d+\b| +`)
)

// testGuide compares the examples of the guide with what the plugin prints, apart from numbers.
// With SETPOINT_UPDATE it writes them.
func (s *site) testGuide(t *testing.T) {
	text, err := os.ReadFile(guide)
	succeed(t, err)
	same := func(text string) string { return varying.ReplaceAllString(text, "#") }
	n := 0
	current := example.ReplaceAllStringFunc(string(text), func(block string) string {
		n++
		m := example.FindStringSubmatch(block)
		o := s.plug(t, strings.Fields(m[1])...)
		if got := o.err + o.out; same(got) != same(m[2]) {
			t.Errorf("SETPOINT_UPDATE=1 updates the guide: kubectl setpoint %s prints\n%s\nand the guide has\n%s", m[1], got, m[2])
			return strings.Replace(block, "\n"+m[2]+"```", "\n"+got+"```", 1)
		}
		return block
	})
	if n < 6 {
		t.Errorf("the guide has %d examples, want one for each command", n)
	}
	if os.Getenv("SETPOINT_UPDATE") != "" {
		succeed(t, os.WriteFile(guide, []byte(current), 0o600))
	}
}
