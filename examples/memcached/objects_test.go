// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1beta1 "github.com/setpoint-dev/setpoint/examples/memcached/api/v1beta1"
)

// TestDesired compares the children of each Memcached in testdata with the file of the same name
// that ends in .children. These objects equal what the builders of c5c3/memcached-operator v0.4.0
// make.
func TestDesired(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("found %v, %v, want 4 files", files, err)
	}
	secrets := map[string]*corev1.Secret{
		"b": {Data: map[string][]byte{"y": []byte("1"), "x": []byte("2")}}, "a": {Data: map[string][]byte{"x": []byte("3")}},
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			mc := &v1beta1.Memcached{}
			input, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(input, mc); err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			e := json.NewEncoder(&got)
			e.SetIndent("", " ")
			for _, child := range desired(mc, hash(secrets)) {
				if err := e.Encode(child); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(strings.TrimSuffix(file, "json") + "children")
			if err != nil || got.String() != string(want) {
				t.Errorf("the children are\n%s\nwant\n%s\n%v", &got, want, err)
			}
		})
	}
}
