// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/rbac"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rule makes a rule from "NAMESPACE GROUP RESOURCE[=NAME] VERBS", with - for an empty word.
func rule(text string) rbac.Rule {
	words := strings.Fields(text)
	for i := range words {
		words[i] = strings.TrimPrefix(words[i], "-")
	}
	r := rbac.Rule{Namespace: words[0], Group: words[1], Resource: words[2], Verbs: strings.Split(words[3], ",")}
	if resource, name, ok := strings.Cut(r.Resource, "="); ok {
		r.Resource, r.Names = resource, []string{name}
	}
	return r
}

func rules(all ...string) (list []rbac.Rule) {
	for _, text := range all {
		list = append(list, rule(text))
	}
	return list
}

func TestRoles_AreTheFewest(t *testing.T) {
	for name, test := range map[string]struct{ rules, want []string }{
		"none": {},
		"verbs of a resource": {
			[]string{"- apps deployments watch", "- apps deployments list,watch"},
			[]string{"ClusterRole : apps deployments list,watch"},
		},
		"resources with the same verbs": {
			[]string{"- apps statefulsets list", "- apps deployments list", "- batch jobs list"},
			[]string{"ClusterRole : apps deployments,statefulsets list", "ClusterRole : batch jobs list"},
		},
		"a Role for each namespace": {
			[]string{"b - pods get", "a - pods get", "- - nodes get"},
			[]string{"ClusterRole :  nodes get", "Role a:  pods get", "Role b:  pods get"},
		},
		"all namespaces are enough": {
			[]string{"a - pods get,list", "- - pods get"},
			[]string{"ClusterRole :  pods get", "Role a:  pods list"},
		},
		"all names are enough": {
			[]string{"a c leases=x get,update", "a c leases update"},
			[]string{"Role a: c leases update", "Role a: c leases=x get"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, role := range rbac.Roles(rules(test.rules...)) {
				for _, p := range role.Rules {
					text := role.Kind() + " " + role.Namespace + ": " + strings.Join(p.APIGroups, ",") + " " + strings.Join(p.Resources, ",")
					if len(p.ResourceNames) > 0 {
						text += "=" + strings.Join(p.ResourceNames, ",")
					}
					got = append(got, text+" "+strings.Join(p.Verbs, ","))
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func TestRoles_OfClustersAreApart(t *testing.T) {
	west := rule("- - pods get")
	west.Cluster = "west"
	if roles := rbac.Roles([]rbac.Rule{west, rule("- - pods get")}); len(roles) != 2 || roles[0].Cluster != "" || roles[1].Cluster != "west" {
		t.Errorf("the roles are %v", roles)
	}
}

func TestReport_WidensWhatWasUsed(t *testing.T) {
	for name, test := range map[string]struct{ needed, used, want []string }{
		"a namespace stays": {nil, []string{"shop - secrets=a get"}, []string{"get secrets in shop"}},
		"but not of a kind that is needed in all": {
			[]string{"- - secrets list,watch"}, []string{"shop - secrets=a patch", "shop - secrets/status=a patch"},
			[]string{"list, patch, watch secrets", "patch secrets/status"},
		},
		"nor of one that is used in all": {
			nil, []string{"- - secrets list", "shop - secrets=a patch"},
			[]string{"list, patch secrets"},
		},
		"nor of several namespaces": {
			nil, []string{"a - secrets get", "b - secrets=x get", "b - secrets=y get"}, []string{"get secrets in a", "get secrets in b"},
		},
		"names that are listed in all widen nothing": {
			[]string{"- - secrets=a list"}, []string{"shop - secrets=a patch"}, []string{"list secrets a", "patch secrets in shop"},
		},
		"the names of Leases stay": {nil, []string{"shop c leases=a get"}, []string{"get leases.c a in shop"}},
		"what is needed has the names": {
			[]string{"shop - secrets=a get,update"}, []string{"shop - secrets=a get"}, []string{"get, update secrets a in shop"},
		},
		"unless others are used": {
			[]string{"shop - secrets=a get"}, []string{"shop - secrets=b get"}, []string{"get secrets in shop"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := rbac.Report{Needed: rules(test.needed...), Used: rules(test.used...)}
			var got []string
			for _, rule := range r.Rules() {
				got = append(got, rule.String())
			}
			testkit.SlicesEqual(t, got, test.want)
		})
	}
}

func TestReport_NamespacesAndClustersAreApart(t *testing.T) {
	west := rule("- - secrets list")
	west.Cluster = "west"
	r := rbac.Report{Needed: append(rules("a - secrets get"), west), Used: rules("b - secrets get")}
	var got []string
	for _, rule := range r.Rules() {
		got = append(got, rule.String())
	}
	testkit.SlicesEqual(t, got, []string{"get secrets in a", "get secrets in b", "list secrets of the cluster west"})
	r.Missing = r.Used
	if text := r.YAML(); strings.Count(text, "# missing: get secrets in b\n") != 1 || !strings.Contains(text, "# cluster: west\n") {
		t.Errorf("the comments are wrong:\n%s", text)
	}
}

// role is a Role or a ClusterRole.
type role struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Rules []rbacv1.PolicyRule `json:"rules"`
	Items []role              `json:"items"` // of a List
}

func parse(t *testing.T, text string) (r role) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &r); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return r
}

func TestYAML_CanBeApplied(t *testing.T) {
	missing := rule("- events.k8s.io events create")
	missing.Why = "the recorder of\nevents"
	r := rbac.Report{
		Name: "website operator", Needed: append(rules("system c leases=yes get", "- - nodes list"), missing), Missing: []rbac.Rule{missing},
	}
	text := r.YAML()
	cluster, system, _ := strings.Cut(text, "---\n")
	want := role{
		TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: "website-operator"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}},
		},
	}
	same(t, parse(t, cluster), want)
	want = role{
		TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"}, ObjectMeta: metav1.ObjectMeta{Name: "website-operator", Namespace: "system"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"c"}, Resources: []string{"leases"}, ResourceNames: []string{"yes"}, Verbs: []string{"get"}}},
	}
	same(t, parse(t, system), want)
	if want := "# missing: create events.events.k8s.io (the recorder of events)\n- {apiGroups: [events.k8s.io]"; strings.Count(text, want) != 1 || strings.Count(text, "# missing") != 1 {
		t.Errorf("the missing rule has no comment:\n%s", text)
	}
}

func TestInline_IsOneLineOfYAML(t *testing.T) {
	odd := rule("shop - configmaps get")
	odd.Names = []string{"it's", "a:b", "null", "9"}
	all := append(rules("- - nodes list"), odd)
	text := rbac.Inline("x", rbac.Roles(all))
	got := parse(t, text)
	if strings.Contains(text, "\n") || strings.Contains(text, `"`) || got.Kind != "List" || len(got.Items) != 2 {
		t.Fatalf("got %s", text)
	}
	names := got.Items[1].Rules[0].ResourceNames
	testkit.SlicesEqual(t, names, []string{"9", "a:b", "it's", "null"}, "the names", text)
	if one := parse(t, rbac.Inline("x", rbac.Roles(all[:1]))); one.Kind != "ClusterRole" || one.Name != "x" {
		t.Errorf("got %v", one)
	}
}

func same(t *testing.T, got, want role) {
	t.Helper()
	a, _ := yaml.Marshal(got)
	b, _ := yaml.Marshal(want)
	testkit.Equal(t, string(a), string(b))
}

// TestYAML_OfAnyText: whatever an API server calls its things, and whatever a program is called.
func TestYAML_OfAnyText(t *testing.T) {
	pieces := []string{"a", "-", ":", "#", "'", "\"", "\\", "\n", "\t", "\u0080", "\u009f", "\ufeff", "\ufffe", "\uffff", "\u2028", "\xff", "\x00", "\x1b", "{", "}", "[", ",", " ", "é", "😀", "yes", "~", "*", "&", "!", "|", ">", "%", "@", "---", "\u0085"}
	r := rand.New(rand.NewSource(1))
	text := func() string {
		var b strings.Builder
		for range 1 + r.Intn(5) {
			b.WriteString(pieces[r.Intn(len(pieces))])
		}
		return b.String()
	}
	seen := map[string]int{}
	for range 2000 {
		ns, res, grp, name, cluster, prog, why := text(), text(), text(), text(), text(), text(), text()
		rule := rbac.Rule{Cluster: cluster, Namespace: ns, Group: grp, Resource: res, Names: []string{name}, Verbs: []string{"get"}, Why: why}
		rep := rbac.Report{Name: prog, Needed: []rbac.Rule{rule}, Missing: []rbac.Rule{rule}}
		for form, out := range map[string]string{"YAML": rep.YAML(), "Inline": rbac.Inline(prog, rbac.Roles([]rbac.Rule{rule}))} {
			var got rbacv1.Role
			if err := yaml.UnmarshalStrict([]byte(out), &got); err != nil {
				msg := fmt.Sprintf("%s: %v", form, err)
				if seen[msg]++; seen[msg] == 1 && len(seen) < 12 {
					t.Errorf("%s\n%q", msg, out)
				}
				continue
			}
			if got.Name == "" {
				seen[form+"noname"]++
				testkit.NotEqual(t, seen[form+"noname"], 1, form, fmt.Sprintf("no name of %q", prog))
			}
			if got.Namespace != ns || len(got.Rules) != 1 || got.Rules[0].Resources[0] != res || got.Rules[0].ResourceNames[0] != name {
				if strings.ToValidUTF8(ns+res+name, "") != ns+res+name {
					continue
				}
				if seen[form]++; seen[form] < 4 {
					t.Errorf("%s: %q %q %q became %+v\n%q", form, ns, res, name, got, out)
				}
			}
		}
	}
}

// A sensitive subresource of one namespace, of a resource that is only listed in all.
func TestReport_KeepsASubresourceInItsNamespace(t *testing.T) {
	r := rbac.Report{
		Name:   "x",
		Needed: []rbac.Rule{{Resource: "serviceaccounts", Verbs: []string{"list", "watch"}, Why: "the informer"}},
		Used:   []rbac.Rule{{Namespace: "build", Resource: "serviceaccounts/token", Names: []string{"runner"}, Verbs: []string{"create"}}},
	}
	for _, rule := range r.Rules() {
		if rule.Resource == "serviceaccounts/token" && (rule.Namespace != "build" || len(rule.Names) != 1) {
			t.Errorf("%s became %s\n%s", r.Used[0].String(), rule.String(), r.YAML())
		}
	}
}

// One used verb that a need does not cover takes its covered verbs along.
func TestReport_KeepsTheNamesOfCoveredVerbs(t *testing.T) {
	r := rbac.Report{
		Name:   "x",
		Needed: []rbac.Rule{{Namespace: "build", Resource: "secrets", Names: []string{"cert"}, Verbs: []string{"get", "list", "watch"}, Why: "the certificate"}},
		Used:   []rbac.Rule{{Namespace: "build", Resource: "secrets", Names: []string{"cert"}, Verbs: []string{"get", "list", "patch", "watch"}}},
	}
	for _, rule := range r.Rules() {
		if len(rule.Names) == 0 && len(rule.Verbs) > 1 {
			t.Errorf("want only patch without a name: %s\n%s", rule.String(), r.YAML())
		}
	}
}

// TestYAML_OfManyNames: the time grows with the number of names, not with its square.
func TestYAML_OfManyNames(t *testing.T) {
	fastest := func(names int) time.Duration {
		r := rbac.Report{Name: "x"}
		for n := range names {
			rule := rbac.Rule{Namespace: "build", Resource: "secrets", Names: []string{fmt.Sprint("n", n)}, Verbs: []string{"list"}}
			r.Needed, r.Missing = append(r.Needed, rule), append(r.Missing, rule)
		}
		best := time.Hour
		for range 3 {
			began := time.Now()
			_ = r.YAML()
			best = min(best, time.Since(began))
		}
		return best
	}
	few, many := fastest(500), fastest(10_000)
	t.Logf("500 names take %s, 10,000 take %s", few, many)
	if many > 150*few {
		t.Errorf("500 names take %s, and 20 times as many take %s", few, many)
	}
}
