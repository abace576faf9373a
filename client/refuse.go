// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// checkPatchType returns an error for a type that Patch cannot send.
func checkPatchType(pt types.PatchType) error {
	switch pt {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType:
		return nil
	case types.ApplyYAMLPatchType, types.ApplyCBORPatchType:
		return fmt.Errorf("the patch type is %q, which is server-side apply; use Apply", pt)
	default:
		return fmt.Errorf("the patch type is %q, which is unknown; use types.JSONPatchType, MergePatchType or StrategicMergePatchType", pt)
	}
}

// sized explains that an object is too large to be stored: neither etcd nor the API server names
// it. Other errors it returns as they are.
func (t target) sized(what string, key types.NamespacedName, err error) error {
	if !isTooLarge(err) {
		return err
	}
	return fmt.Errorf("%s %s %s: the object is too large for the API server, which stores about 1.5 MiB at most; split it, or keep its data elsewhere: %w",
		what, t.gvk.Kind, strings.TrimPrefix(key.String(), "/"), err)
}

// nameOf returns the name of an object that may have none yet.
func nameOf(obj Object) types.NamespacedName {
	key := keyOf(obj)
	if key.Name == "" {
		key.Name = obj.GetGenerateName()
	}
	return key
}

// isTooLarge recognizes the answers of the API server (413), of etcd, and of gRPC between them.
func isTooLarge(err error) bool {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) {
		return false
	}
	text := status.Status().Message
	return apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(text, "etcdserver: request is too large") ||
		strings.Contains(text, "ResourceExhausted") && strings.Contains(text, "larger than max")
}
