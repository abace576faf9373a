// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// builtinSchema is the structure of the built-in kinds, as in client-go's apply configurations.
// client-go exports it only with the apply configurations of all kinds: 50 packages more, and a
// tenth of a first build. TestBuiltinSchema_IsClientGos -update writes the file.
//
//go:embed builtinschema.yaml.gz
var builtinSchema []byte

// SchemaParser parses builtinSchema, once in a process.
var SchemaParser = sync.OnceValues(func() (*typed.Parser, error) {
	unzip, err := gzip.NewReader(bytes.NewReader(builtinSchema))
	if err != nil {
		return nil, err
	}
	schema, err := io.ReadAll(unzip)
	if err != nil {
		return nil, err
	}
	return typed.NewParser(typed.YAMLObject(schema))
})
