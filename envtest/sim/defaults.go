// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "k8s.io/apimachinery/pkg/runtime"

// setDefaults sets the fields that an API server sets if the client has not.
func setDefaults(runtime.Object) {}
