// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

func TestDocument_DescribesItsKinds(t *testing.T) {
	d := kinds.Define(kinds.Resource{Group: "example.com", Version: "v1", Kind: "Lamp", Name: "lamps", Namespaced: true})
	data, err := Document(d.GV(), []*kinds.Definition{&d})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"com.example.v1.Lamp":`, `"/apis/example.com/v1/namespaces/{namespace}/lamps/{name}/status":`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the document has no %s", want)
		}
	}
}
