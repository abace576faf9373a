// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"slices"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
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

// Built-in kinds that the server treats in a special way.
var (
	Pods       = Resource{Version: "v1", Kind: "Pod", Name: "pods", Namespaced: true}
	Events     = Resource{Version: "v1", Kind: "Event", Name: "events", Namespaced: true}
	Namespaces = Resource{Version: "v1", Kind: "Namespace", Name: "namespaces"}
)

// GV returns group and version.
func (r Resource) GV() schema.GroupVersion {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}
}

// GVR returns the resource with group and version.
func (r Resource) GVR() schema.GroupVersionResource { return r.GV().WithResource(r.Name) }

// GVK returns the kind with group and version.
func (r Resource) GVK() schema.GroupVersionKind { return r.GV().WithKind(r.Kind) }

// Definition is what the server knows of a resource, apart from its objects.
type Definition struct {
	Resource
	strategy
	Singular               string
	ShortNames, Categories []string
	Verbs                  []string
	Subresources           []string         // in the order of discovery
	Native                 bool             // served without a CustomResourceDefinition
	BuiltIn                bool             // a kind of client-go's scheme
	NewStatus              map[string]any   // of a new CustomResourceDefinition
	Schema                 crdschema.Schema // nil: all objects are valid
	columns                []printerColumn  // of the CustomResourceDefinition
	SelectableFields       []string         // paths that field selectors can name
	CRD                    bool             // a CustomResourceDefinition describes it
	Terminating            bool             // its CustomResourceDefinition is being deleted
	Guessed                bool             // no CustomResourceDefinition names its plural

	Prepare func(*unstructured.Unstructured) // runs before an object is stored; may be nil
}

// The verbs of built-in and of custom kinds, in the order of discovery.
var (
	allVerbs    = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	customVerbs = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
)

// Takes reports whether discovery lists the verb.
func (d Definition) Takes(verb string) bool {
	if verb == "apply" {
		verb = "patch"
	}
	return slices.Contains(d.Verbs, verb)
}

// Define returns the definition of a built-in resource, or a guess for another: it has a status.
func Define(r Resource) Definition {
	for _, d := range BuiltIns() {
		if d.Resource == r {
			return d
		}
	}
	d := Definition{Resource: r, strategy: customStrategy(), Singular: strings.ToLower(r.Kind), Verbs: customVerbs, Subresources: []string{"status"}}
	if Scheme().Recognizes(r.GVK()) { // not served by default, or with another name
		d.setBuiltIn()
	}
	return d
}

// setBuiltIn sets what a kind of Go types in Kubernetes has.
func (d *Definition) setBuiltIn() {
	d.strategy = builtInStrategy(d.GVR().GroupResource())
	if d.GVR() == CRDs {
		d.Schema, d.Prepare = CRDSchema{}, prepareCRD
		d.NewStatus = map[string]any{"conditions": nil, "acceptedNames": map[string]any{"plural": "", "kind": ""}}
	}
	d.BuiltIn = Scheme().Recognizes(d.GVK())
}

// Subresource returns the kind and the verbs of a subresource. Like discovery, it omits a group and
// version that are the resource's.
func (d Definition) Subresource(sub string) (schema.GroupVersionKind, []string) {
	kind, verbs := schema.GroupVersionKind{Kind: d.Kind}, []string{"get", "patch", "update"}
	switch sub {
	case "scale":
		kind = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	case "eviction":
		kind, verbs = schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}, []string{"create"}
	case "token":
		kind, verbs = schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}, []string{"create"}
	case "binding":
		kind.Kind, verbs = "Binding", []string{"create"}
	case "finalize":
		verbs = []string{"update"}
	case "log":
		verbs = []string{"get"}
	case "exec", "attach":
		kind.Kind, verbs = d.Kind+strings.ToUpper(sub[:1])+sub[1:]+"Options", []string{"create", "get"}
	case "portforward":
		kind.Kind, verbs = d.Kind+"PortForwardOptions", []string{"create", "get"}
	case "proxy":
		kind.Kind, verbs = d.Kind+"ProxyOptions", []string{"create", "delete", "get", "patch", "update"}
	}
	return kind, verbs
}

// IsNamespaces reports whether it defines namespaces.
func (d Definition) IsNamespaces() bool { return d.Group == "" && d.Name == Namespaces.Name }

// IsCoreEvents reports whether it defines the Events of the core group.
func (d Definition) IsCoreEvents() bool { return d.Group == "" && d.Name == Events.Name }

// IsReview reports whether objects of the kind are questions, which are answered and not stored.
func (d Definition) IsReview() bool {
	return d.Native && slices.Contains(ReviewGroups, d.Group)
}

// GoType is the type that the real server names in errors.
func (d Definition) GoType(suffix string) string {
	if !d.BuiltIn {
		return "*unstructured.Unstructured" + suffix
	}
	group, _, _ := strings.Cut(d.Group, ".")
	if group == "" {
		group = "core"
	}
	return "*" + group + "." + d.Kind + suffix
}

// TypePrefix begins the JSON of a built-in object.
func (d Definition) TypePrefix() string {
	return `{"kind":` + strconv.Quote(d.Kind) + `,"apiVersion":` + strconv.Quote(d.GV().String()) + `,`
}

// StorageKey is the key in etcd; the real server shows it in one message.
func (d Definition) StorageKey(u *unstructured.Unstructured) string {
	of := d.GVR().GroupResource().String()
	path := "/registry/"
	switch special := storagePrefixes[of]; {
	case special != "":
		path += special + "/"
	case !d.BuiltIn || slices.Contains([]string{"apiextensions.k8s.io", "apiregistration.k8s.io"}, d.Group):
		path += d.Group + "/" + d.Name + "/"
	default:
		path += d.Name + "/"
	}
	if d.Namespaced {
		path += u.GetNamespace() + "/"
	}
	return path + u.GetName()
}

// storagePrefixes are the prefixes of keys in etcd that are not the resource's name.
var storagePrefixes = map[string]string{
	"services": "services/specs", "endpoints": "services/endpoints", "nodes": "minions",
	"replicationcontrollers": "controllers", "ingresses.networking.k8s.io": "ingress",
}

// ReviewGroups are the groups of reviews.
var ReviewGroups = []string{authorizationv1.GroupName, authenticationv1.GroupName}
