// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

const fieldManager = "envtest"

type manifest struct {
	where  string // file and document number
	object *unstructured.Unstructured
}

// Apply applies every object in files or directories, as for InstallCRDs, in order. It uses
// server-side apply and takes over fields that others own. A namespaced object without a namespace
// goes to default. Install CRDs first.
func (c *Cluster) Apply(ctx context.Context, paths ...string) error {
	manifests, err := readManifests(paths...)
	if err != nil {
		return err
	}
	return c.apply(ctx, manifests)
}

// ApplyYAML is Apply for the text of a manifest, which may have several documents.
func (c *Cluster) ApplyYAML(ctx context.Context, text []byte) error {
	manifests, err := parseManifests("manifest", bytes.NewReader(text))
	if err != nil {
		return err
	}
	return c.apply(ctx, manifests)
}

func (c *Cluster) apply(ctx context.Context, manifests []manifest) error {
	if len(manifests) == 0 {
		return nil
	}
	groups, err := restmapper.GetAPIGroupResources(c.discovery)
	if err != nil {
		return c.checkAlive(fmt.Errorf("envtest: cannot discover the types: %w", err))
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, m := range manifests {
		gvk := m.object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return fmt.Errorf("envtest: %s: there is no type %s: %w; install its CRD first", m.where, gvk, err)
		}
		var r dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace := cmp.Or(m.object.GetNamespace(), metav1.NamespaceDefault)
			r = c.dynamic.Resource(mapping.Resource).Namespace(namespace)
		}
		if err := c.applyOne(ctx, r, m); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) applyOne(ctx context.Context, r dynamic.ResourceInterface, m manifest) error {
	_, err := r.Apply(ctx, m.object.GetName(), m.object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return c.checkAlive(fmt.Errorf("envtest: %s: cannot apply %s %s: %w", m.where, m.object.GetKind(), m.object.GetName(), err))
	}
	return nil
}

func readManifests(paths ...string) ([]manifest, error) {
	var all []manifest
	for _, path := range paths {
		files, err := manifestFiles(path)
		if err != nil {
			return nil, fmt.Errorf("envtest: cannot read manifests: %w", err)
		}
		for _, name := range files {
			f, err := os.Open(name)
			if err != nil {
				return nil, fmt.Errorf("envtest: cannot read manifests: %w", err)
			}
			found, err := parseManifests(name, f)
			f.Close()
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

func manifestFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("directory %s has no file *.yaml, *.yml or *.json", path)
	}
	return files, nil
}

func parseManifests(name string, from io.Reader) ([]manifest, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(from))
	var all []manifest
	for n := 1; ; n++ {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		where := fmt.Sprintf("%s, document %d", name, n)
		if err != nil {
			return nil, fmt.Errorf("envtest: cannot read %s: %w", where, err)
		}
		var content map[string]any
		if err := yaml.UnmarshalStrict(text, &content); err != nil {
			return nil, fmt.Errorf("envtest: %s is not valid YAML: %w", where, err)
		}
		if len(content) == 0 {
			continue
		}
		object := &unstructured.Unstructured{Object: content}
		if err := checkObject(object); err != nil {
			return nil, fmt.Errorf("envtest: %s is not a Kubernetes object: %w", where, err)
		}
		all = append(all, manifest{where: where, object: object})
	}
}

func checkObject(o *unstructured.Unstructured) error {
	for _, path := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}} {
		if s, ok, err := unstructured.NestedString(o.Object, path...); err != nil || !ok || s == "" {
			return fmt.Errorf("it needs a %s", path[len(path)-1])
		}
	}
	return nil
}
