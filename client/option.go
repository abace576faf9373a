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

// Option changes one call of a [Handle] or a [Subresource]. Where one makes no sense, the call says so and does nothing. Of
// several that say the same, the last one holds.
type Option struct {
	name string
	fits verb
	set  func(*call) error
}

// verb is a set of what calls do.
type verb uint8

const (
	creating verb = 1 << iota
	updating
	patching
	applying
	deleting
)

// call is what options say.
type call struct {
	owner   string
	dryRun  []string
	already Object // to compare with
	compare bool   // UnlessAlready was given, perhaps without an object
	delete  metav1.DeleteOptions
}

// DryRun has the API server do all but store: admission, defaulting and validation are done, and the answer is what would be
// stored. It is for every write.
func DryRun() Option {
	return Option{name: "DryRun", fits: creating | updating | patching | applying | deleting, set: func(c *call) error {
		c.dryRun = []string{metav1.DryRunAll}
		return nil
	}}
}

// FieldOwner is the field manager of this write, instead of that of [Options]. It is for every write but deletes.
func FieldOwner(name string) Option {
	return Option{name: "FieldOwner", fits: creating | updating | patching | applying, set: func(c *call) error {
		c.owner = name
		if name == "" {
			return errors.New("it is empty")
		}
		return checkFieldOwner(name)
	}}
}

// checkFieldOwner says what the API server would refuse.
func checkFieldOwner(name string) error {
	if len(name) > 128 {
		return fmt.Errorf("it has %d bytes, at most 128 are allowed", len(name))
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("it is %q, only printable characters are allowed", name)
	}
	return nil
}

// Preconditions lets a Delete only pass while the object has this UID and this resourceVersion; "" leaves one out, not both.
// Otherwise the error is a conflict.
func Preconditions(uid types.UID, resourceVersion string) Option {
	return Option{name: "Preconditions", fits: deleting, set: func(c *call) error {
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

// Propagation says what a Delete does to what the object owns. Default: background.
func Propagation(p metav1.DeletionPropagation) Option {
	return Option{name: "Propagation", fits: deleting, set: func(c *call) error {
		c.delete.PropagationPolicy = &p
		return nil
	}}
}

// GracePeriod is how long a Delete leaves to what has to end in order, such as a pod, in whole seconds. Default: what the
// object says.
func GracePeriod(d time.Duration) Option {
	return Option{name: "GracePeriod", fits: deleting, set: func(c *call) error {
		if d < 0 || d%time.Second != 0 {
			return fmt.Errorf("it is %s, give whole seconds", d)
		}
		seconds := int64(d / time.Second)
		c.delete.GracePeriodSeconds = &seconds
		return nil
	}}
}

func (c call) create() metav1.CreateOptions {
	return metav1.CreateOptions{FieldManager: c.owner, DryRun: c.dryRun}
}

func (c call) update() metav1.UpdateOptions {
	return metav1.UpdateOptions{FieldManager: c.owner, DryRun: c.dryRun}
}

func (c call) patch() metav1.PatchOptions {
	return metav1.PatchOptions{FieldManager: c.owner, DryRun: c.dryRun}
}

// apply forces conflicts: a controller is the authority on what it applies.
func (c call) apply() metav1.PatchOptions {
	o, force := c.patch(), true
	o.Force = &force
	return o
}
