// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"cmp"
	"fmt"
)

// Options configure a Proxy. The zero value works.
type Options struct {
	// LogSize is the number of latest requests that Proxy.Requests remembers. Default: 10000.
	LogSize int

	// BufferSize is how many bytes of one answer Rule.Lag and Rule.Freeze buffer before the API
	// server has to wait. Default: 16 MiB.
	BufferSize int
}

// Validate returns an error that names the invalid field, if any.
func (o Options) Validate() error {
	switch {
	case o.LogSize < 0:
		return fmt.Errorf("fault: Options.LogSize is %d; it must not be negative", o.LogSize)
	case o.BufferSize < 0:
		return fmt.Errorf("fault: Options.BufferSize is %d; it must not be negative", o.BufferSize)
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.LogSize = cmp.Or(o.LogSize, 10_000)
	o.BufferSize = cmp.Or(o.BufferSize, 16<<20)
	return o
}
