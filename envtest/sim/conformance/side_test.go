// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

const userAgent = "conformance/v1"

// patience only prevents a broken server from hanging the suite.
const patience = 2 * time.Minute

// kinds are the prefixes of paths by plural; the plural follows.
var kinds = map[string]string{
	"configmaps":  "/api/v1/namespaces/{ns}/",
	"secrets":     "/api/v1/namespaces/{ns}/",
	"pods":        "/api/v1/namespaces/{ns}/",
	"services":    "/api/v1/namespaces/{ns}/",
	"events":      "/api/v1/namespaces/{ns}/",
	"namespaces":  "/api/v1/",
	"deployments": "/apis/apps/v1/namespaces/{ns}/",
	"leases":      "/apis/coordination.k8s.io/v1/namespaces/{ns}/",
	"widgets":     "/apis/conformance.setpoint.dev/v1/namespaces/{ns}/", // with status and scale
	"gadgets":     "/apis/conformance.setpoint.dev/v1/namespaces/{ns}/", // without
	"beacons":     "/apis/conformance.setpoint.dev/v1/",

	"validatingwebhookconfigurations": "/apis/admissionregistration.k8s.io/v1/",
	"mutatingwebhookconfigurations":   "/apis/admissionregistration.k8s.io/v1/",
	"customresourcedefinitions":       "/apis/apiextensions.k8s.io/v1/",
}

var patchTypes = map[string]string{
	"json": "application/json-patch+json", "merge": "application/merge-patch+json",
	"strategic": "application/strategic-merge-patch+json", "apply": "application/apply-patch+yaml",
}

// side is one of the two servers, as one script sees it.
type side struct {
	host      string
	client    *http.Client
	real      bool
	namespace string
	seen      map[string]map[string][]string // by object and field, in order of appearance
	watches   []*http.Response
	symbols   symbols
}

// response is what a server answered, masked.
type response struct {
	Status  int
	Headers map[string][]string
	Body    any
}

var placeholder = regexp.MustCompile(`\{(continue|listrv|name|(?:rv|oldrv|uid) [^}]*)\}`)

// expand replaces the placeholders:
//
//	{ns}                 the namespace
//	{rv configmaps/a}    the newest resourceVersion of an object; oldrv is its first one
//	{uid configmaps/a}   the newest uid
//	{listrv} {continue}  of the newest list
//	{name}               the newest generated name
func (s *side) expand(text string) string {
	text = expandHooks(s.namespace, strings.ReplaceAll(text, "{ns}", s.namespace))
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		field, of, _ := strings.Cut(strings.Trim(m, "{}"), " ")
		values := s.seen[of][strings.TrimPrefix(field, "old")]
		switch {
		case len(values) == 0:
			return "1"
		case field == "oldrv":
			return values[0]
		}
		return values[len(values)-1]
	})
}

func (s *side) remember(of, field, value string) {
	if s.seen[of] == nil {
		s.seen[of] = map[string][]string{}
	}
	s.seen[of][field] = append(s.seen[of][field], value)
}

// path expands a target.
func (s *side) path(target string) string {
	end := strings.IndexAny(target, "/?")
	if end < 0 {
		end = len(target)
	}
	if prefix, ok := kinds[target[:end]]; ok {
		target = prefix + target
	}
	return s.expand(target)
}

// plural returns the kind of a target.
func plural(target string) string {
	for _, part := range strings.FieldsFunc(target, func(c rune) bool { return c == '/' || c == '?' }) {
		if _, ok := kinds[part]; ok && (part != "namespaces" || strings.HasPrefix(target, part)) {
			return part
		}
	}
	return ""
}

func (s *side) request(ctx context.Context, one step) (*http.Response, error) {
	method := one.method
	if method == "WATCH" || method == "UNTIL" || method == "GONE" {
		method = http.MethodGet
	}
	var body io.Reader
	if one.body != "" && one.method != "UNTIL" {
		body = strings.NewReader(s.expand(one.body))
	}
	h, err := http.NewRequestWithContext(ctx, method, s.host+s.path(one.target), body)
	if err != nil {
		return nil, err
	}
	h.Header.Set("Accept", "application/json")
	h.Header.Set("User-Agent", userAgent)
	if body != nil {
		h.Header.Set("Content-Type", "application/json")
	}
	for _, option := range one.options {
		name, value, _ := strings.Cut(option, "=")
		switch {
		case patchTypes[option] != "":
			h.Header.Set("Content-Type", patchTypes[option])
		case name == "type":
			h.Header.Set("Content-Type", value)
		default:
			h.Header.Set(name, value)
		}
	}
	return s.client.Do(h)
}

// do sends one request. It returns nil for a step without a response to compare.
func (s *side) do(ctx context.Context, one step) (*response, error) {
	switch one.method {
	case "GONE", "UNTIL":
		return nil, s.wait(ctx, one)
	case "HOOKED", "SETUP", "SERVED":
		return nil, s.arrange(ctx, one)
	case "WATCH":
		if !strings.Contains(one.target, "watch=") && !strings.Contains(one.target, "/watch/") {
			one.target += map[bool]string{true: "&watch=1", false: "?watch=1"}[strings.Contains(one.target, "?")]
		}
	}
	if s.real && isOpenAPI(one) {
		if err := s.described(ctx); err != nil {
			return nil, err
		}
	}
	if s.real && strings.Contains(one.target, "resourceVersion=") {
		if err := s.refresh(ctx, one); err != nil {
			return nil, err
		}
	}
	resp, err := s.request(ctx, one)
	if err != nil {
		return nil, err
	}
	if one.method == "WATCH" && resp.StatusCode == http.StatusOK {
		s.watches = append(s.watches, resp)
		return &response{Status: resp.StatusCode}, nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	r := &response{Status: resp.StatusCode, Headers: map[string][]string{}}
	for _, name := range []string{"Content-Type", "Warning", "Retry-After"} {
		if v := resp.Header.Values(name); len(v) > 0 {
			r.Headers[name] = v
		}
	}
	if json.Unmarshal(data, &r.Body) != nil {
		r.Body = string(data)
	}
	s.learn(plural(one.target), r.Body)
	r.Body = s.symbols.mask(r.Body)
	for name, values := range r.Headers {
		for i, v := range values {
			r.Headers[name][i], _ = s.symbols.mask(v).(string)
		}
	}
	return r, nil
}

// refresh waits until the real server's watch cache is current. Reads of version 0 or of at least a
// version may be older than the newest write.
func (s *side) refresh(ctx context.Context, one step) error {
	p := plural(one.target)
	if p == "" {
		return nil
	}
	resp, err := s.request(ctx, step{method: http.MethodGet, target: p + "?fieldSelector=metadata.name=none"})
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return err
}

// described waits until the real server has published the suite's kinds in OpenAPI. It does so a
// while after it serves them, and has no event for it.
func (s *side) described(ctx context.Context) error {
	for {
		resp, err := s.request(ctx, step{method: http.MethodGet, target: "/openapi/v3/apis/conformance.setpoint.dev/v1"})
		if err != nil {
			return err
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		if bytes.Contains(data, []byte("v1.Widget\"")) && bytes.Contains(data, []byte("v1.Gadget\"")) && bytes.Contains(data, []byte("v1.Beacon\"")) {
			return nil
		}
	}
}

// learn records versions and uids for expand.
func (s *side) learn(plural string, body any) {
	object, _ := body.(map[string]any)
	meta, _ := object["metadata"].(map[string]any)
	rv, _ := meta["resourceVersion"].(string)
	if items, ok := object["items"].([]any); ok {
		s.remember("", "listrv", rv)
		token, _ := meta["continue"].(string)
		s.remember("", "continue", token)
		for _, item := range items {
			s.learn(plural, item)
		}
		return
	}
	name, _ := meta["name"].(string)
	if name == "" || rv == "" {
		return
	}
	uid, _ := meta["uid"].(string)
	s.remember(plural+"/"+name, "rv", rv)
	s.remember(plural+"/"+name, "uid", uid)
	if generate, _ := meta["generateName"].(string); generate != "" {
		s.remember("", "name", name)
	}
}

// events reads and masks a watch's events until the event of an object "end", an error, or its end.
func (s *side) events(ctx context.Context, resp *http.Response) ([]any, error) {
	stop := context.AfterFunc(ctx, func() { resp.Body.Close() })
	defer stop()
	defer resp.Body.Close()
	list := []any{}
	for d := json.NewDecoder(resp.Body); ; {
		var e map[string]any
		if err := d.Decode(&e); err != nil {
			if ctx.Err() != nil {
				return list, fmt.Errorf("the watch did not end; its events are %v", list)
			}
			return append(list, "the stream ended"), nil
		}
		object, _ := e["object"].(map[string]any)
		meta, _ := object["metadata"].(map[string]any)
		initial, _ := meta["annotations"].(map[string]any)
		if e["type"] == "BOOKMARK" && initial["k8s.io/initial-events-end"] == nil {
			continue // their time is not fixed
		}
		list = append(list, s.symbols.mask(e))
		if e["type"] == "ERROR" || meta["name"] == "end" || meta["name"] == s.namespace+"-end" {
			return list, nil
		}
	}
}

// wait waits by watching until an object is gone or contains the step's body.
func (s *side) wait(ctx context.Context, one step) error {
	path, name := one.target[:strings.LastIndex(one.target, "/")], one.target[strings.LastIndex(one.target, "/")+1:]
	list, err := s.request(ctx, step{method: http.MethodGet, target: path + "?fieldSelector=metadata.name=" + name})
	if err != nil {
		return err
	}
	defer list.Body.Close()
	var found struct {
		Metadata struct{ ResourceVersion string }
		Items    []any
	}
	if err := json.NewDecoder(list.Body).Decode(&found); err != nil {
		return err
	}
	var want any
	if one.body != "" {
		if err := json.Unmarshal([]byte(s.expand(one.body)), &want); err != nil {
			return err
		}
	}
	if one.method == "GONE" && len(found.Items) == 0 || one.method == "UNTIL" && slices.ContainsFunc(found.Items, func(o any) bool { return contains(o, want) }) {
		return nil
	}
	watch, err := s.request(ctx, step{method: "WATCH", target: path + "?watch=1&fieldSelector=metadata.name=" + name + "&resourceVersion=" + found.Metadata.ResourceVersion})
	if err != nil {
		return err
	}
	defer watch.Body.Close()
	for d := json.NewDecoder(watch.Body); ; {
		var e struct {
			Type   string
			Object any
		}
		if err := d.Decode(&e); err != nil {
			return fmt.Errorf("%s: %w", one, err)
		}
		if one.method == "GONE" && e.Type == "DELETED" || one.method == "UNTIL" && contains(e.Object, want) {
			return nil
		}
	}
}

// contains reports whether an object has all fields of want, and not those that are null in it.
func contains(object, want any) bool {
	fields, ok := want.(map[string]any)
	if !ok {
		a, _ := json.Marshal(object)
		b, _ := json.Marshal(want)
		return bytes.Equal(a, b)
	}
	has, _ := object.(map[string]any)
	for field, value := range fields {
		if value == nil && has[field] != nil || value != nil && !contains(has[field], value) {
			return false
		}
	}
	return true
}
