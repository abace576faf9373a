// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"testing"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestDocument_DescribesItsKinds(t *testing.T) {
	d := kinds.Define(kinds.Resource{Group: "example.com", Version: "v1", Kind: "Lamp", Name: "lamps", Namespaced: true})
	data := testkit.Must(Document(d.GV(), []*kinds.Definition{&d}))
	for _, want := range []string{`"com.example.v1.Lamp":`, `"/apis/example.com/v1/namespaces/{namespace}/lamps/{name}/status":`} {
		testkit.Contains(t, string(data), want)
	}
}
