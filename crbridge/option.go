// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"fmt"
	"reflect"
	"unsafe"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// watchOption is what the options of package builder set.
type watchOption struct {
	predicates []predicate.Predicate
	metadata   bool
	anyOwner   bool
}

// optionOf reads the options of For, Owns or Watches. Package builder has three of them, and no
// other package can make one.
func optionOf[O any](all []O) (o watchOption, err error) {
	for _, one := range all {
		switch option := any(one).(type) {
		case builder.Predicates:
			o.predicates, err = predicatesOf(&option)
		case *builder.Predicates:
			o.predicates, err = predicatesOf(option)
		default:
			switch {
			case option == any(builder.OnlyMetadata):
				o.metadata = true
			case option == any(builder.MatchEveryOwner):
				o.anyOwner = true
			default:
				return o, fmt.Errorf("the option %T is unknown; use those of package builder", one)
			}
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// predicatesOf reads the only field of builder.Predicates, which is not exported.
func predicatesOf(p *builder.Predicates) ([]predicate.Predicate, error) {
	v := reflect.ValueOf(p).Elem()
	if v.NumField() != 1 || v.Field(0).Type() != reflect.TypeFor[[]predicate.Predicate]() {
		return nil, fmt.Errorf("this version of controller-runtime has another %T; use the one that go.mod of crbridge requires", p)
	}
	return *(*[]predicate.Predicate)(unsafe.Pointer(p)), nil //nolint:gosec // its type was compared
}
