// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package object

import "k8s.io/apimachinery/pkg/util/resourceversion"

// AtLeast reports whether a resourceVersion is another one, or a later one. It returns false if one
// of them is not a number.
func AtLeast(version, other string) bool {
	c, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && c >= 0
}

// Before reports whether a resourceVersion is earlier than another. It returns false if one of them
// is not a number.
func Before(version, other string) bool {
	c, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && c < 0
}
