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

// Option changes one call of a [Handle] or a [Subresource]. A call that does not take it returns an
// error and sends nothing. If an option is given twice, the last one counts.
type Option struct {
	name string
	fits []verb
	set  func(*call) error
}

type verb string

const (
	getting     verb = "get"
	listing     verb = "list"
	watching    verb = "watch"
	creating    verb = "create"
	updating    verb = "update"
	patching    verb = "patch"
	applying    verb = "apply"
	deleting    verb = "delete"
	deletingAll verb = "delete all"
)

func (v verb) collection() bool { return v == listing || v == watching || v == deletingAll }

type call struct {
	write   metav1.PatchOptions // also for creates and updates
	delete  metav1.DeleteOptions
	already Object // of UnlessAlready, or nil
	compare bool   // UnlessAlready was given
	trace   string // of TraceParent
}

// DryRun makes the API server process any write, including admission, without storing the result.
func DryRun() Option {
	return Option{name: "DryRun", fits: []verb{creating, updating, patching, applying, deleting, deletingAll}, set: func(c *call) error {
		c.dryRun()
		return nil
	}}
}

func (c *call) dryRun() {
	all := []string{metav1.DryRunAll}
	c.write.DryRun, c.delete.DryRun = all, all
}

// FieldValidation sets what the API server does with unknown and duplicate fields of a write,
// except deletes. mode is one of:
//
//   - metav1.FieldValidationStrict: the write fails with IsBadRequest; the error names the fields.
//   - metav1.FieldValidationWarn, the API server's default: they are dropped, and the client logs a
//     warning.
//   - metav1.FieldValidationIgnore: they are dropped.
//
// The API server cannot check a typed built-in object, which is sent as protobuf. It refuses
// unknown fields of an apply in every mode.
func FieldValidation(mode string) Option {
	return Option{name: "FieldValidation", fits: []verb{creating, updating, patching, applying}, set: func(c *call) error {
		c.write.FieldValidation = mode
		if mode == "" {
			return errors.New("it is empty; give a constant such as metav1.FieldValidationStrict")
		}
		return checkFieldValidation(mode)
	}}
}

func checkFieldValidation(mode string) error {
	switch mode {
	case "", metav1.FieldValidationStrict, metav1.FieldValidationWarn, metav1.FieldValidationIgnore:
		return nil
	}
	return fmt.Errorf("it is %q; give %s, %s or %s", mode, metav1.FieldValidationStrict, metav1.FieldValidationWarn, metav1.FieldValidationIgnore)
}

// NoForce makes an apply fail with a *[FieldConflictError], and store nothing, if it would change a
// field that another field owner has set. A retry fails, too, until that owner gives up the field.
func NoForce() Option {
	return Option{name: "NoForce", fits: []verb{applying}, set: func(c *call) error {
		c.write.Force = nil
		return nil
	}}
}

// OptimisticLock makes [PatchFrom] and [CreateOrPatch] fail with a conflict if the object no longer
// has the resourceVersion that they compare with.
func OptimisticLock() Option {
	return Option{name: optimisticLock, set: func(*call) error { return nil }}
}

const optimisticLock = "OptimisticLock"

// FieldOwner sets the field manager of any write except deletes, instead of [Options].FieldOwner.
func FieldOwner(name string) Option {
	return Option{name: "FieldOwner", fits: []verb{creating, updating, patching, applying}, set: func(c *call) error {
		c.write.FieldManager = name
		if name == "" {
			return errors.New("it is empty")
		}
		return checkFieldOwner(name)
	}}
}

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
// resourceVersion. One may be empty.
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
	return Option{name: "Propagation", fits: []verb{deleting, deletingAll}, set: func(c *call) error {
		c.delete.PropagationPolicy = &p
		return nil
	}}
}

// GracePeriod sets how long an object, such as a Pod, has to terminate after a Delete, in whole
// seconds. Default: the object's own.
func GracePeriod(d time.Duration) Option {
	return Option{name: "GracePeriod", fits: []verb{deleting, deletingAll}, set: func(c *call) error {
		if d < 0 || d%time.Second != 0 {
			return fmt.Errorf("it is %s, give whole seconds", d)
		}
		c.delete.GracePeriodSeconds = new(int64(d / time.Second))
		return nil
	}}
}
