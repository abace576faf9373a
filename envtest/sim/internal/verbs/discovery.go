// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// apiGroup is an API group in discovery, with its versions in the order of preference.
type apiGroup struct {
	name     string
	versions []groupVersion
}

type groupVersion struct {
	name   string
	tables []*store.Table // by name
}

func (v groupVersion) definitions() []*kinds.Definition {
	var list []*kinds.Definition
	for _, t := range v.tables {
		list = append(list, &t.Definition)
	}
	return list
}

func (a *API) discover(r *request.Request) (*http.Response, error) {
	parts := strings.Split(strings.Trim(r.HTTP.URL.Path, "/"), "/")
	aggregated := strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList")
	groups := a.groups()
	switch {
	case len(parts) >= 2 && parts[0] == "openapi" && parts[1] == "v3":
		return a.openAPI(r)
	case len(parts) == 2 && parts[0] == "openapi" && parts[1] == "v2":
		return answerOpenAPIV2(r), nil
	case len(parts) == 1 && parts[0] == "version":
		return r.Answer(http.StatusOK, kinds.Version())
	case len(parts) == 1 && slices.Contains([]string{"healthz", "livez", "readyz"}, parts[0]):
		return r.Respond(http.StatusOK, "text/plain; charset=utf-8", []byte("ok")), nil
	case len(parts) == 1 && parts[0] == "api" && aggregated:
		return answerGroups(r, groups[:min(1, len(groups))], "")
	case len(parts) == 1 && parts[0] == "apis" && aggregated:
		return answerGroups(r, groups, "apis")
	case len(parts) == 1 && parts[0] == "api":
		versions := &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
		versions.ServerAddressByClientCIDRs = []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: r.HTTP.URL.Host}}
		return r.Answer(http.StatusOK, versions)
	case len(parts) == 1 && parts[0] == "apis":
		return r.Answer(http.StatusOK, groupList(groups))
	case len(parts) == 2 && parts[0] == "apis":
		for _, g := range groups {
			if g.name == parts[1] {
				list := g.legacy()
				list.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}
				return r.Answer(http.StatusOK, list)
			}
		}
	case len(parts) == 2 && parts[0] == "api", len(parts) == 3 && parts[0] == "apis":
		return a.discoverVersion(r, groups)
	}
	if slices.Contains([]string{"", "metrics", "logs", "openapi", "debug", ".well-known"}, parts[0]) {
		// client-go drops the message of a Status here, and keeps a text.
		return r.Respond(http.StatusNotImplemented, "text/plain; charset=utf-8", []byte(request.Unsupported(r).Error()+"\n")), nil
	}
	return r.NoPage(), nil
}

func (a *API) discoverVersion(r *request.Request, groups []apiGroup) (*http.Response, error) {
	for _, g := range groups {
		for _, v := range g.versions {
			if g.name == r.Resource.Group && v.name == r.Resource.Version {
				return r.Answer(http.StatusOK, a.resourceList(r.Resource.GroupVersion(), v.tables))
			}
		}
	}
	return a.notServed(r)
}

// groups returns the served groups: Kubernetes' own in its order, then the others by name.
func (a *API) groups() []apiGroup {
	order, of := map[string]int{}, map[kinds.Resource]int{}
	for i, d := range kinds.BuiltIns() {
		if _, ok := order[d.Group]; !ok {
			order[d.Group] = i + 1
		}
		of[d.Resource] = i
	}
	place := func(t *store.Table) int { return cmp.Or(order[t.Group], len(of)+1) }
	var tables []*store.Table
	for _, t := range a.store.Tables {
		tables = append(tables, t)
	}
	slices.SortFunc(tables, func(a, b *store.Table) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.Group, b.Group),
			apiversion.CompareKubeAwareVersionStrings(b.Version, a.Version), cmp.Compare(of[a.Resource], of[b.Resource]), cmp.Compare(a.Name, b.Name))
	})
	var groups []apiGroup
	for _, t := range tables {
		if len(groups) == 0 || groups[len(groups)-1].name != t.Group {
			groups = append(groups, apiGroup{name: t.Group})
		}
		g := &groups[len(groups)-1]
		if len(g.versions) == 0 || g.versions[len(g.versions)-1].name != t.Version {
			g.versions = append(g.versions, groupVersion{name: t.Version})
		}
		v := &g.versions[len(g.versions)-1]
		v.tables = append(v.tables, t)
	}
	return groups
}

func groupList(groups []apiGroup) *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}, Groups: []metav1.APIGroup{}}
	for _, g := range groups {
		if g.name != "" {
			list.Groups = append(list.Groups, g.legacy())
		}
	}
	return list
}

func (g apiGroup) legacy() metav1.APIGroup {
	list := metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		list.Versions = append(list.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g.name + "/" + v.name, Version: v.name})
	}
	list.PreferredVersion = list.Versions[0]
	return list
}

func (a *API) resourceList(gv schema.GroupVersion, tables []*store.Table) *metav1.APIResourceList {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv.String()}
	if gv.Group == "" {
		list.APIVersion = "" // as in Kubernetes
	}
	for _, t := range tables {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: t.Name, SingularName: t.Singular, Kind: t.Kind, Namespaced: t.Namespaced,
			Verbs: t.Verbs, ShortNames: t.ShortNames, Categories: t.Categories, StorageVersionHash: versionHash(t),
		})
		for _, sub := range t.Subresources {
			kind, verbs := t.Subresource(sub)
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: t.Name + "/" + sub, Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Namespaced: t.Namespaced, Verbs: verbs,
			})
		}
	}
	return list
}

// versionHash identifies the stored version of a kind. Kinds that are not stored have none.
func versionHash(t *store.Table) string {
	if !slices.Contains(t.Verbs, "watch") {
		return ""
	}
	sum := sha256.Sum256([]byte(t.StorageKind.Group + "/" + t.StorageKind.Version + "/" + t.StorageKind.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// answerGroups answers with aggregated discovery; root is apis or, for the core group, empty.
func answerGroups(r *request.Request, groups []apiGroup, root string) (*http.Response, error) {
	list := &apidiscovery.APIGroupDiscoveryList{Items: []apidiscovery.APIGroupDiscovery{}}
	list.TypeMeta = metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"}
	for _, g := range groups {
		if (g.name == "") == (root == "") {
			list.Items = append(list.Items, g.aggregated())
		}
	}
	resp, err := r.Answer(http.StatusOK, list)
	if err == nil {
		resp.Header.Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	}
	return resp, err
}

func (g apiGroup) aggregated() apidiscovery.APIGroupDiscovery {
	of := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	for _, v := range g.versions {
		version := apidiscovery.APIVersionDiscovery{Version: v.name, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		for _, t := range v.tables {
			version.Resources = append(version.Resources, aggregatedResource(t))
		}
		of.Versions = append(of.Versions, version)
	}
	return of
}

func aggregatedResource(t *store.Table) apidiscovery.APIResourceDiscovery {
	d := apidiscovery.APIResourceDiscovery{
		Resource: t.Name, SingularResource: t.Singular, Verbs: t.Verbs, ShortNames: t.ShortNames, Categories: t.Categories,
		ResponseKind: responseKind(t, schema.GroupVersionKind{Kind: t.Kind}), Scope: apidiscovery.ScopeCluster,
	}
	if t.Namespaced {
		d.Scope = apidiscovery.ScopeNamespace
	}
	for _, sub := range t.Subresources {
		kind, verbs := t.Subresource(sub)
		d.Subresources = append(d.Subresources, apidiscovery.APISubresourceDiscovery{Subresource: sub, ResponseKind: responseKind(t, kind), Verbs: verbs})
	}
	return d
}

// responseKind returns a kind as aggregated discovery shows it: complete for custom kinds.
func responseKind(t *store.Table, kind schema.GroupVersionKind) *metav1.GroupVersionKind {
	if kind.Version == "" && !t.Native {
		kind.Group, kind.Version = t.Group, t.Version
	}
	return &metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}
}
