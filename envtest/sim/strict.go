// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strings"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/codec"
)

func (t *table) codec() codec.Codec {
	return codec.Codec{Kind: t.GVK(), Typed: t.BuiltIn, Schema: t.Schema}
}

// warnAll adds a warning for each unknown or duplicate field.
func (r *Request) warnAll(fields []error) {
	for _, e := range fields {
		text := e.Error()
		for _, prefix := range []string{"error converting YAML to JSON: yaml: unmarshal errors:\n", "yaml: unmarshal errors:\n"} {
			text = strings.TrimPrefix(text, prefix)
		}
		for _, line := range strings.Split(text, "\n") {
			r.warn(strings.TrimSpace(line))
		}
	}
}
