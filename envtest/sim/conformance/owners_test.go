// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
)

// ownerKinds are the kinds of generated owners and dependents. A script has one of them: the
// garbage collector may see changes of two kinds in another order.
var ownerKinds = []string{"configmaps", "secrets", "widgets"}

// generateOwners returns the script of a seed: objects that own each other, changes, and SETTLE
// after each step that the garbage collector reacts to. Some scripts end with the deletion of a
// namespace.
func generateOwners(seed uint64) script {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 17))} //nolint:gosec // it must repeat
	kind := pick(g, ownerKinds...)
	g.kinds = []string{kind}
	var objects []string
	for i := range 3 + g.IntN(3) {
		name := string(rune('a' + i))
		g.add("POST", kind, g.owned(kind, name, objects))
		objects = append(objects, kind+"/"+name)
	}
	g.settle()
	for range 4 {
		of := pick(g, objects...)
		switch n := g.IntN(10); {
		case n < 6:
			g.add("DELETE", of, pick(g, "", `{"propagationPolicy":"Background"}`, `{"propagationPolicy":"Foreground"}`, `{"propagationPolicy":"Foreground"}`,
				`{"propagationPolicy":"Orphan"}`))
		case n < 8:
			g.add("PATCH", of, `{"metadata":{"finalizers":null}}`, "merge")
		default:
			g.add("PATCH", of, fmt.Sprintf(`{"metadata":{"ownerReferences":[%s]}}`, g.rare(2, g.owner(pick(g, objects...)))), "merge")
		}
		g.settle()
	}
	// The collector has handled earlier changes when it has handled a later one.
	g.add("POST", kind, plainObject(kind, "y", ""))
	g.add("POST", kind, plainObject(kind, "z", fmt.Sprintf(`,"ownerReferences":[{%s,"name":"y","uid":"{uid %s/y}"}]`, typeOf(kind), kind)))
	g.add("DELETE", kind+"/y", "")
	g.settle()
	if g.IntN(10) == 0 {
		g.namespace()
	}
	return script{name: fmt.Sprintf("owners, seed %d", seed), steps: g.steps}
}

// notRootCA excludes the ConfigMap that a cluster adds to each namespace.
const notRootCA = "configmaps?fieldSelector=metadata.name!%3Dkube-root-ca.crt"

func (g *generator) settle() {
	g.add("SETTLE", strings.Replace(g.kinds[0], "configmaps", notRootCA, 1), "")
}

// owned returns an object that some of the others own.
func (g *generator) owned(kind, name string, others []string) string {
	var refs []string
	for range min(len(others), pick(g, 0, 1, 1, 1, 2)) {
		if ref := g.owner(pick(g, others...)); len(refs) == 0 || ref[:strings.Index(ref, ",\"uid")] != refs[0][:strings.Index(refs[0], ",\"uid")] {
			refs = append(refs, ref)
		}
	}
	return plainObject(kind, name, g.rare(6, `,"finalizers":["example.com/f"]`)+`,"ownerReferences":[`+strings.Join(refs, ",")+"]")
}

// plainObject returns an object without content. The metadata but the name begin with a comma.
func plainObject(kind, name, metadata string) string {
	return fmt.Sprintf(`{%s,"metadata":{"name":"%s"%s}}`, typeOf(kind), name, metadata)
}

// typeOf returns the fields apiVersion and kind.
func typeOf(kind string) string {
	at := strings.LastIndex(apiVersions[kind], "/")
	return fmt.Sprintf(`"apiVersion":"%s","kind":"%s"`, apiVersions[kind][:at], apiVersions[kind][at+1:])
}

// owner returns a reference to an object, or now and then to one that does not exist.
func (g *generator) owner(of string) string {
	kind, name, _ := strings.Cut(of, "/")
	uid := "{uid " + of + "}"
	if g.IntN(20) == 0 {
		uid = "00000000-0000-0000-0000-000000000001"
	}
	return fmt.Sprintf(`{%s,"name":"%s","uid":"%s"%s}`, typeOf(kind), name, uid, g.rare(2, `,"blockOwnerDeletion":true`))
}

// namespace deletes a namespace with a few objects. Those with finalizers hold it back.
func (g *generator) namespace() {
	g.add("POST", "namespaces", `{"metadata":{"name":"{ns}-x"}}`)
	held := ""
	for i := range g.IntN(3) {
		finalizers := ""
		if i == 0 && g.IntN(2) == 0 {
			finalizers, held = `,"finalizers":["example.com/f"]`, "/api/v1/namespaces/{ns}-x/configmaps/n0"
		}
		g.add("POST", "/api/v1/namespaces/{ns}-x/configmaps", fmt.Sprintf(`{"metadata":{"name":"n%d"%s}}`, i, finalizers))
	}
	g.add("DELETE", "namespaces/{ns}-x", "")
	if held != "" {
		g.add("SETTLE", "/api/v1/namespaces/{ns}-x/"+notRootCA+",namespaces?fieldSelector=metadata.name%3D{ns}-x", "")
		g.add("PATCH", held, `{"metadata":{"finalizers":null}}`, "merge")
	}
	g.add("GONE", "namespaces/{ns}-x", "")
	g.add("GET", "/api/v1/namespaces/{ns}-x/"+notRootCA, "")
}

// settle waits by watching until the real server's objects equal the objects of the sim, which has
// settled already. It returns the differences that remain when patience ends.
func settle(ctx context.Context, real, sim *side, target string) ([]string, error) {
	lists := strings.Split(target, ",")
	want := map[string]any{}
	for _, list := range lists {
		objects, _, err := sim.state(ctx, list)
		if err != nil {
			return nil, err
		}
		want[list] = objects
	}
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	for _, list := range lists {
		objects, version, err := real.state(ctx, list)
		for err == nil && len(diff("", objects, want[list])) > 0 {
			if err = real.next(ctx, list, version); err != nil {
				break
			}
			objects, version, err = real.state(context.WithoutCancel(ctx), list)
		}
		if err != nil {
			return diff(list, objects, want[list]), nil
		}
	}
	return nil, nil
}

// state returns the masked objects of a list without their versions, and the list's version.
func (s *side) state(ctx context.Context, target string) (objects any, version string, err error) {
	resp, err := s.request(ctx, step{method: http.MethodGet, target: target})
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []any
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, "", err
	}
	for _, item := range list.Items {
		s.learn(plural(target), item)
		object, _ := item.(map[string]any)
		meta, _ := object["metadata"].(map[string]any)
		delete(meta, "resourceVersion")
		if meta["deletionTimestamp"] != nil {
			// The order of deletions decides which of them are left.
			delete(meta, "ownerReferences")
			delete(meta, "managedFields")
		}
	}
	return s.symbols.mask(list.Items), list.Metadata.ResourceVersion, nil
}

// next waits for a change after a version of a list.
func (s *side) next(ctx context.Context, target, version string) error {
	query := "?"
	if strings.Contains(target, "?") {
		query = "&"
	}
	watch, err := s.request(ctx, step{method: "WATCH", target: target + query + "watch=1&resourceVersion=" + version})
	if err != nil {
		return err
	}
	defer watch.Body.Close()
	return json.NewDecoder(watch.Body).Decode(&struct{}{})
}
