// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
)

// Resource is a served kind.
type Resource struct {
	Group, Version, Kind string // the core group is ""
	// Name is the plural in paths.
	Name       string
	Namespaced bool
}

// Some built-in kinds.
var (
	ConfigMaps  = Resource{Version: "v1", Kind: "ConfigMap", Name: "configmaps", Namespaced: true}
	Secrets     = Resource{Version: "v1", Kind: "Secret", Name: "secrets", Namespaced: true}
	Pods        = Resource{Version: "v1", Kind: "Pod", Name: "pods", Namespaced: true}
	Events      = Resource{Version: "v1", Kind: "Event", Name: "events", Namespaced: true}
	Namespaces  = Resource{Version: "v1", Kind: "Namespace", Name: "namespaces"}
	Deployments = Resource{Group: "apps", Version: "v1", Kind: "Deployment", Name: "deployments", Namespaced: true}
	Leases      = Resource{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease", Name: "leases", Namespaced: true}
)

func (r Resource) gv() schema.GroupVersion {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}
}

func (r Resource) gvr() schema.GroupVersionResource { return r.gv().WithResource(r.Name) }

func (r Resource) gvk() schema.GroupVersionKind { return r.gv().WithKind(r.Kind) }

// definition is what the server knows of a resource, apart from its objects.
type definition struct {
	Resource
	strategy
	singular          string
	short, categories []string
	verbs             []string
	sub               []string         // the names of its subresources, in the order of discovery
	native            bool             // Kubernetes serves it without a CustomResourceDefinition
	builtIn           bool             // a kind of client-go's scheme
	newStatus         map[string]any   // the status of a new CustomResourceDefinition
	schema            crdschema.Schema // nil: every object is valid
	printed           []printerColumn  // of a CustomResourceDefinition
	selectable        []string         // the paths that its field selectors can name
	crd, terminating  bool             // a CustomResourceDefinition describes it; is being deleted
	guessed           bool             // no CustomResourceDefinition names its plural

	prepare func(*unstructured.Unstructured) // runs before an object is stored; may be nil
}

// The verbs of built-in and of custom kinds, in the order of discovery.
var (
	allVerbs    = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	customVerbs = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
)

// takes reports whether discovery lists the verb.
func (d definition) takes(verb string) bool {
	if verb == "apply" {
		verb = "patch"
	}
	return slices.Contains(d.verbs, verb)
}

// define returns the definition of a built-in resource, or a guess for another: it has a status.
func define(r Resource) definition {
	for _, d := range builtIns() {
		if d.Resource == r {
			return d
		}
	}
	d := definition{Resource: r, strategy: customStrategy(), singular: strings.ToLower(r.Kind), verbs: customVerbs, sub: []string{"status"}}
	if builtInScheme().Recognizes(r.gvk()) { // not served by default, or with another name
		d.setBuiltIn()
	}
	return d
}

// setBuiltIn sets what a kind of Go types in Kubernetes has.
func (d *definition) setBuiltIn() {
	d.strategy = builtInStrategy(d.gvr().GroupResource())
	if d.gvr() == crdResource {
		d.schema, d.prepare = crdSchema{}, prepareCRD
		d.newStatus = map[string]any{"conditions": nil, "acceptedNames": map[string]any{"plural": "", "kind": ""}}
	}
	d.builtIn = builtInScheme().Recognizes(d.gvk())
}
