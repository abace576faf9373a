// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// generator makes a script from random numbers. Few names and values make conflicts frequent.
type generator struct {
	*rand.Rand
	kinds []string // of this script
	steps []step
	named bool // an object has a generated name; lists of several have another order
}

// generate returns the script of a seed: a pure function.
func generate(seed uint64) script {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 16))} //nolint:gosec // it must repeat
	all := []string{"configmaps", "secrets", "leases", "widgets", "gadgets", "beacons", "services", "pods", "deployments", "events"}
	for range 2 {
		g.kinds = append(g.kinds, all[g.IntN(len(all))])
	}
	if slices.Contains(g.kinds, "services") && slices.Contains(g.kinds, "events") {
		g.kinds[1] = g.kinds[0] // the real server emits events about Services
	}
	watched := ""
	if g.IntN(3) == 0 && g.kinds[0] != "beacons" {
		watched = g.kinds[0]
		g.add("GET", watched, "")
		g.add("WATCH", watched+"?resourceVersion={listrv}"+g.rare(3, "&labelSelector=l%3D1"), "")
	}
	for range 30 {
		g.step()
	}
	if watched != "" {
		g.add("POST", watched, valid(watched, "end"))
	}
	if seed%100 == 0 { // a document is large
		group := strings.TrimSuffix(kinds[g.kinds[0]], "namespaces/{ns}/")
		g.add("GET", "/openapi/v3"+strings.TrimSuffix(group, "/"), "")
	}
	return script{name: fmt.Sprintf("seed %d", seed), steps: g.steps}
}

func (g *generator) add(method, target, body string, options ...string) {
	g.steps = append(g.steps, step{method: method, target: target, body: body, options: options})
}

func pick[T any](g *generator, values ...T) T { return values[g.IntN(len(values))] }

// rare returns value one time in n.
func (g *generator) rare(n int, value string) string {
	if g.IntN(n) == 0 {
		return value
	}
	return ""
}

func (g *generator) step() {
	kind := pick(g, g.kinds...)
	name := pick(g, "a", "b")
	if kind == "beacons" {
		name = "{ns}-" + name
	}
	of := kind + "/" + name
	if g.IntN(16) == 0 {
		g.extra(kind, of)
		return
	}
	query := g.query()
	switch n := g.IntN(100); {
	case n < 22:
		g.add("POST", kind+query, g.mutate(g.object(kind, name, "")))
	case n < 40:
		g.add("PUT", of+g.sub(kind)+query, g.mutate(g.object(kind, name, g.version(of))))
	case n < 55:
		g.add("PATCH", of+g.sub(kind)+query, g.mutate(g.mergePatch(of)), pick(g, "merge", "merge", "strategic"))
	case n < 60:
		g.add("PATCH", of+query, g.jsonPatch(), "json")
	case n < 70:
		manager := "?fieldManager=" + pick(g, "one", "two") + g.rare(3, "&force=true")
		g.add("PATCH", of+manager, g.mutate(g.object(kind, name, g.rare(5, g.version(of)))), "apply")
	case n < 76:
		g.add("GET", of+g.sub(kind), "")
	case n < 84:
		g.list(kind)
	case n < 98:
		g.add("DELETE", of+query, g.deleteOptions(of))
	case kind != "services" && kind != "beacons":
		g.add("DELETE", kind+"?labelSelector=l%3D"+pick(g, "1", "2"), "")
	}
}

// extra adds a request that step does not make, because it is rarer.
func (g *generator) extra(kind, of string) {
	namespaced := kind != "beacons"
	switch g.IntN(5) {
	case 0, 1:
		if kind == "widgets" || kind == "deployments" {
			g.scale(of)
		}
	case 2:
		if !g.named && namespaced {
			g.named = true
			g.add("POST", kind+g.query(), strings.Replace(g.object(kind, "n-", ""), `"name":`, `"generateName":`, 1))
		}
	case 3:
		g.add("GET", of, "", "Accept=application/json;as=PartialObjectMetadata"+g.rare(2, "List")+";g=meta.k8s.io;v=v1")
	case 4:
		if namespaced && kind != "services" {
			g.add("DELETE", kind+"?limit=1"+g.rare(2, "&dryRun=All"), "")
		}
	}
}

// scale adds a request for the scale of an object.
func (g *generator) scale(of string) {
	_, name, _ := strings.Cut(of, "/")
	body := fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"%s"%s},"spec":{"replicas":%d}}`,
		name, g.rare(4, `,"resourceVersion":"`+pick(g, "{rv "+of+"}", "{oldrv "+of+"}")+`"`), g.IntN(4)-g.IntN(2))
	switch g.IntN(4) {
	case 0:
		g.add("GET", of+"/scale", "")
	case 1:
		g.add("PUT", of+"/scale"+g.query(), body)
	case 2:
		g.add("PATCH", of+"/scale"+g.query(), fmt.Sprintf(`{"spec":{"replicas":%d}}`, g.IntN(4)), "merge")
	case 3:
		if strings.HasPrefix(of, "deployments") {
			g.add("PATCH", of+"/scale?fieldManager="+pick(g, "one", "two")+g.rare(2, "&force=true"), body, "apply")
		}
	}
}

func (g *generator) query() string {
	return pick(g, "", "", "", "", "", "", "", "?dryRun=All", "?fieldValidation=Strict", "?fieldValidation=Ignore", "?fieldManager=one")
}

func (g *generator) sub(kind string) string {
	if slices.Contains([]string{"widgets", "deployments", "pods", "gadgets"}, kind) {
		return g.rare(4, "/status")
	}
	return ""
}

// version returns a resourceVersion, or none.
func (g *generator) version(of string) string {
	return pick(g, "", "{rv "+of+"}", "{rv "+of+"}", "{oldrv "+of+"}")
}

// metadata returns the fields of metadata but the name, each preceded by a comma.
func (g *generator) metadata(version string) string {
	text := g.rare(2, fmt.Sprintf(`,"labels":{"l":"%d"}`, g.IntN(3))) +
		g.rare(4, fmt.Sprintf(`,"annotations":{"x":"%d"}`, g.IntN(2))) +
		g.rare(8, pick(g, `,"finalizers":["example.com/f"]`, `,"finalizers":[]`, `,"finalizers":["example.com/f","example.com/g"]`)) +
		g.rare(40, `,"labels":{"a b":"c"}`) + g.rare(40, `,"generation":7`) + g.rare(40, `,"uid":"00000000-0000-0000-0000-000000000001"`) +
		g.rare(40, `,"namespace":"other"`) + g.rare(40, `,"creationTimestamp":"2020-01-01T00:00:00Z"`)
	if version != "" {
		text += `,"resourceVersion":"` + version + `"`
	}
	return text
}

var apiVersions = map[string]string{
	"configmaps": "v1/ConfigMap", "secrets": "v1/Secret", "services": "v1/Service", "pods": "v1/Pod", "events": "v1/Event",
	"deployments": "apps/v1/Deployment", "leases": "coordination.k8s.io/v1/Lease",
	"widgets": "conformance.setpoint.dev/v1/Widget", "gadgets": "conformance.setpoint.dev/v1/Gadget", "beacons": "conformance.setpoint.dev/v1/Beacon",
}

// object returns a whole object.
func (g *generator) object(kind, name, version string) string {
	return fmt.Sprintf(`{%s,"metadata":{"name":"%s"%s}%s}`, typeOf(kind), name, g.metadata(version), g.content(kind))
}

// valid returns an object that every server accepts.
func valid(kind, name string) string {
	spec := map[string]string{
		"services":    `,"spec":{"ports":[{"port":80}]}`,
		"events":      `,"involvedObject":{"namespace":"{ns}"}`,
		"pods":        `,"spec":{"containers":[{"name":"c","image":"i"}]}`,
		"deployments": `,"spec":{"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`,
	}[kind]
	return fmt.Sprintf(`{%s,"metadata":{"name":"%s","labels":{"l":"1"}}%s}`, typeOf(kind), name, spec)
}

// content returns the fields other than metadata, each preceded by a comma.
func (g *generator) content(kind string) string {
	n := g.IntN(3)
	switch kind {
	case "configmaps":
		return g.rare(2, fmt.Sprintf(`,"data":{"k":"%d"}`, n)) + g.rare(20, `,"immutable":true`) + g.rare(30, `,"data":{"a b":"1"}`)
	case "secrets":
		return g.rare(2, `,"data":{"k":"AAAA"}`) + g.rare(6, fmt.Sprintf(`,"stringData":{"l":"%d"}`, n)) + g.rare(10, `,"type":"x/y"`)
	case "leases":
		return g.rare(2, fmt.Sprintf(`,"spec":{"holderIdentity":"h%d","leaseDurationSeconds":%d}`, n, pick(g, 15, 10, 0)))
	case "services":
		return fmt.Sprintf(`,"spec":{"selector":{"app":"%d"},"ports":[{"port":%d}]%s}`, n, pick(g, 80, 81, 80, 0), g.rare(2, `,"clusterIP":"None"`))
	case "events":
		return fmt.Sprintf(`,"involvedObject":{"kind":"Pod","namespace":"{ns}","name":"p"},"reason":"R%d","type":"Normal","count":%d`, n, n)
	case "pods":
		return fmt.Sprintf(`,"spec":{"containers":[{"name":"c","image":"i%d"}]%s}`, n, g.rare(5, `,"nodeName":"n"`)) + g.status()
	case "deployments":
		return fmt.Sprintf(`,"spec":{"replicas":%d,"selector":{"matchLabels":{"app":"%s"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i%d"}]}}}`,
			n, pick(g, "a", "a", "a", "a", "b"), g.IntN(2)) + g.rare(3, fmt.Sprintf(`,"status":{"replicas":%d}`, n))
	}
	return g.rare(2, fmt.Sprintf(`,"spec":{"replicas":%d,"list":[%d]}`, n, g.IntN(2))) + g.status()
}

func (g *generator) status() string {
	return g.rare(3, fmt.Sprintf(`,"status":{"phase":"%s"}`, pick(g, "Running", "Pending")))
}

// mutate breaks a body now and then.
func (g *generator) mutate(body string) string {
	switch g.IntN(60) {
	case 0:
		return body[:len(body)-1]
	case 1:
		return strings.Replace(body, `"metadata":`, `"unknown":1,"metadata":`, 1)
	case 2:
		return strings.Replace(body, `"name":"`, `"name":"X_`, 1)
	case 3:
		return strings.Replace(body, `"kind":"`, `"kind":"Other`, 1)
	case 4:
		return strings.Replace(body, `"metadata":`, `"metadata":{},"metadata":`, 1)
	}
	return body
}

func (g *generator) mergePatch(of string) string {
	kind, _, _ := strings.Cut(of, "/")
	fields := []string{
		fmt.Sprintf(`"metadata":{"labels":{"l":%s}}`, pick(g, `"1"`, `"2"`, "null")),
		`"metadata":{"finalizers":` + pick(g, "null", "[]", `["example.com/f"]`) + "}",
		`"metadata":{"annotations":{"x":"1"},"resourceVersion":"` + pick(g, "{rv "+of+"}", "{oldrv "+of+"}") + `"}`,
	}
	if rest := g.content(kind); rest != "" {
		fields = append(fields, rest[1:], rest[1:])
	}
	return "{" + pick(g, fields...) + "}"
}

func (g *generator) jsonPatch() string {
	op := pick(g, `{"op":"add","path":"/metadata/labels","value":{"l":"1"}}`, `{"op":"remove","path":"/metadata/labels/l"}`,
		`{"op":"replace","path":"/metadata/labels/l","value":"2"}`, `{"op":"test","path":"/metadata/labels/l","value":"1"}`,
		`{"op":"remove","path":"/metadata/finalizers"}`, `{"op":"add","path":"/metadata/annotations","value":{"y":"1"}}`)
	return "[" + op + "]"
}

func (g *generator) list(kind string) {
	if kind == "beacons" {
		return // other scripts have some too
	}
	g.add("GET", kind+pick(g, "", "?labelSelector=l%3D1", "?labelSelector=!l", "?fieldSelector=metadata.name%3Da", "?limit=1", "?resourceVersion=0",
		"?resourceVersion={listrv}", "?fieldSelector=metadata.name!%3Da", "?limit=5&labelSelector=l"), "")
}

func (g *generator) deleteOptions(of string) string {
	return pick(g, "", "", "", "", `{"preconditions":{"uid":"{uid `+of+`}"}}`, `{"preconditions":{"resourceVersion":"{oldrv `+of+`}"}}`,
		`{"gracePeriodSeconds":0}`, `{"propagationPolicy":"Background"}`, `{"propagationPolicy":"What"}`)
}
