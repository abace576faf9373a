// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Key is namespace and name of an object.
type Key struct{ Namespace, Name string }

// KeyOf returns the key of an object.
func KeyOf(o metav1.Object) Key { return Key{Namespace: o.GetNamespace(), Name: o.GetName()} }

// path is the key's name in storage, by which lists are ordered.
func (k Key) path() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// comparePaths compares the paths of two keys without building them.
func comparePaths(a, b Key) int {
	if a.Namespace == b.Namespace {
		return strings.Compare(a.Name, b.Name)
	}
	short := min(len(a.Namespace), len(b.Namespace))
	if c := strings.Compare(a.Namespace[:short], b.Namespace[:short]); c != 0 {
		return c
	}
	if len(a.Namespace) == short { // the other character can be '-', which is less than '/'
		return compareByte('/', b.Namespace[short])
	}
	return compareByte(a.Namespace[short], '/')
}

func compareByte(a, b byte) int { return int(a) - int(b) }

// Below is the path of a key in a namespace, or its path if namespace is empty.
func (k Key) Below(namespace string) string {
	if namespace != "" {
		return k.Name
	}
	return k.path()
}

// Within returns the keys of a namespace ("" is all) whose path is not before start.
func Within(keys []Key, namespace, start string) []Key {
	if namespace != "" {
		first, _ := slices.BinarySearchFunc(keys, Key{Namespace: namespace}, comparePaths)
		keys = keys[first:]
		end, _ := slices.BinarySearchFunc(keys, namespace, func(k Key, namespace string) int {
			if k.Namespace == namespace {
				return -1
			}
			return 1
		})
		keys = keys[:end]
	}
	if start == "" {
		return keys
	}
	first, _ := slices.BinarySearchFunc(keys, start, func(k Key, start string) int { return strings.Compare(k.Below(namespace), start) })
	return keys[first:]
}
