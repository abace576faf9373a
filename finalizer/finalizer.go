// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// Has reports whether obj has the finalizer.
func Has(obj metav1.Object, name string) bool {
	return !argument.IsNil(obj) && slices.Contains(obj.GetFinalizers(), name)
}

// Add adds a finalizer, such as "example.com/cleanup", to obj in memory, and reports whether obj
// changed. An invalid name is an error, and so is a new finalizer for an object in deletion.
func Add(obj metav1.Object, name string) (changed bool, err error) {
	switch err := check(name); {
	case argument.IsNil(obj):
		return false, fmt.Errorf("finalizer: the object for %s is nil", name)
	case err != nil:
		return false, fmt.Errorf("finalizer: %s: %w", object.Name(object.Key(obj)), err)
	case Has(obj, name):
		return false, nil
	case obj.GetDeletionTimestamp() != nil:
		return false, fmt.Errorf("finalizer: %s is being deleted, and takes no new finalizer %s", object.Name(object.Key(obj)), name)
	}
	obj.SetFinalizers(append(slices.Clone(obj.GetFinalizers()), name))
	return true, nil
}

// Remove removes a finalizer from obj in memory, and reports whether obj had it.
func Remove(obj metav1.Object, name string) (changed bool) {
	if !Has(obj, name) {
		return false
	}
	obj.SetFinalizers(slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == name }))
	return true
}

// check returns an error for a name without a domain, which the API server refuses.
func check(name string) error {
	if name == "" {
		return errors.New("a finalizer has no name; give a domain and a name, such as example.com/cleanup")
	}
	if len(validation.IsQualifiedName(name)) > 0 || !strings.Contains(name, "/") {
		return fmt.Errorf("the finalizer %q is invalid; give a domain and a name, such as example.com/cleanup", name)
	}
	return nil
}
