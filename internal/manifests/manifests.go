// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifests reads Kubernetes objects from YAML and JSON files.
package manifests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Manifest is an object of a file.
type Manifest struct {
	Where  string // file and document number
	Object *unstructured.Unstructured
}

// Read reads the objects of files. Of a directory, it reads the files with the extensions yaml, yml
// and json.
func Read(paths ...string) ([]Manifest, error) {
	var all []Manifest
	for _, path := range paths {
		files, err := filesOf(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read manifests: %w", err)
		}
		for _, name := range files {
			f, err := os.Open(name)
			if err != nil {
				return nil, fmt.Errorf("cannot read manifests: %w", err)
			}
			found, err := Parse(name, f)
			f.Close()
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

func filesOf(path string) ([]string, error) {
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

// Parse reads the documents of one file.
func Parse(name string, from io.Reader) ([]Manifest, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(from))
	var all []Manifest
	for n := 1; ; n++ {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		where := fmt.Sprintf("%s, document %d", name, n)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", where, err)
		}
		var content map[string]any
		if err := yaml.UnmarshalStrict(text, &content); err != nil {
			return nil, fmt.Errorf("%s is not valid YAML: %w", where, err)
		}
		if len(content) == 0 {
			continue
		}
		object := &unstructured.Unstructured{Object: content}
		if err := Check(object); err != nil {
			return nil, fmt.Errorf("%s is not a Kubernetes object: %w", where, err)
		}
		all = append(all, Manifest{Where: where, Object: object})
	}
}

// Check returns an error for an object without an apiVersion, a kind or a name.
func Check(o *unstructured.Unstructured) error {
	for _, path := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}} {
		if s, ok, err := unstructured.NestedString(o.Object, path...); err != nil || !ok || s == "" {
			return fmt.Errorf("it needs a %s", path[len(path)-1])
		}
	}
	return nil
}
