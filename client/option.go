// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Option changes one call of a [Handle] or a [Subresource]. A call that does not take an option
// returns an error and sends nothing. If an option is given twice, the last one counts.
type Option struct {
	name string
	fits []verb
	set  func(*call) error
}

type verb string

const (
	getting  verb = "get"
	listing  verb = "list"
	creating verb = "create"
	updating verb = "update"
	patching verb = "patch"
	applying verb = "apply"
	deleting verb = "delete"
)

// call is the result of a call's options.
type call struct {
	write   metav1.PatchOptions // also for creates and updates, which have the same parameters
	delete  metav1.DeleteOptions
	already Object // of UnlessAlready, or nil
	compare bool   // UnlessAlready was given
}

// DryRun makes the API server process a write, including admission, without storing the result. All
// writes take it.
func DryRun() Option {
	return Option{name: "DryRun", fits: []verb{creating, updating, patching, applying, deleting}, set: func(c *call) error {
		all := []string{metav1.DryRunAll}
		c.write.DryRun, c.delete.DryRun = all, all
		return nil
	}}
}

// FieldOwner sets the field manager of a write, instead of [Options].FieldOwner. All writes except
// deletes take it.
func FieldOwner(name string) Option {
	return Option{name: "FieldOwner", fits: []verb{creating, updating, patching, applying}, set: func(c *call) error {
		c.write.FieldManager = name
		if name == "" {
			return errors.New("it is empty")
		}
		return checkFieldOwner(name)
	}}
}

// checkFieldOwner checks the API server's rules for field managers.
func checkFieldOwner(name string) error {
	if len(name) > 128 {
		return fmt.Errorf("it has %d bytes, at most 128 are allowed", len(name))
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("it is %q, only printable characters are allowed", name)
	}
	return nil
}

// Preconditions makes a Delete fail with a conflict unless the object has this UID and this
// resourceVersion. One of them may be empty.
func Preconditions(uid types.UID, resourceVersion string) Option {
	return Option{name: "Preconditions", fits: []verb{deleting}, set: func(c *call) error {
		if uid == "" && resourceVersion == "" {
			return errors.New("neither a UID nor a resourceVersion is given; is the object one that was read?")
		}
		c.delete.Preconditions = &metav1.Preconditions{}
		if uid != "" {
			c.delete.Preconditions.UID = &uid
		}
		if resourceVersion != "" {
			c.delete.Preconditions.ResourceVersion = &resourceVersion
		}
		return nil
	}}
}

// Propagation sets what a Delete does with dependents. Default: background.
func Propagation(p metav1.DeletionPropagation) Option {
	return Option{name: "Propagation", fits: []verb{deleting}, set: func(c *call) error {
		c.delete.PropagationPolicy = &p
		return nil
	}}
}

// GracePeriod sets how long an object, such as a Pod, has to terminate after a Delete, in whole
// seconds. Default: the object's own grace period.
func GracePeriod(d time.Duration) Option {
	return Option{name: "GracePeriod", fits: []verb{deleting}, set: func(c *call) error {
		if d < 0 || d%time.Second != 0 {
			return fmt.Errorf("it is %s, give whole seconds", d)
		}
		seconds := int64(d / time.Second)
		c.delete.GracePeriodSeconds = &seconds
		return nil
	}}
}
