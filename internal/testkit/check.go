// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// NoError ends the test if err is not nil.
func NoError(t testing.TB, err error, name ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(prefix(name) + err.Error())
	}
}

// Err returns the error of a call that returns two values.
func Err[T any](_ T, err error) error { return err }

// Must returns the value of a call, and panics with its error.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Equal compares with ==.
func Equal[T comparable](t testing.TB, got, want T, name ...any) {
	t.Helper()
	if got != want {
		t.Error(message(name, got, "want ", want))
	}
}

// NotEqual compares with ==. It wants another value.
func NotEqual[T comparable](t testing.TB, got, unwanted T, name ...any) {
	t.Helper()
	if got == unwanted {
		t.Error(message(name, got, "want another value than ", unwanted))
	}
}

// AtLeast compares with <.
func AtLeast[T cmp.Ordered](t testing.TB, got, least T, name ...any) {
	t.Helper()
	if got < least {
		t.Error(message(name, got, "want at least ", least))
	}
}

// AtMost compares with >.
func AtMost[T cmp.Ordered](t testing.TB, got, most T, name ...any) {
	t.Helper()
	if got > most {
		t.Error(message(name, got, "want at most ", most))
	}
}

// SlicesEqual compares with slices.Equal.
func SlicesEqual[S ~[]E, E comparable](t testing.TB, got, want S, name ...any) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Error(message(name, got, "want ", want))
	}
}

// DeepEqual compares with reflect.DeepEqual.
func DeepEqual(t testing.TB, got, want any, name ...any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Error(message(name, got, "want ", want))
	}
}

// Len compares the length of a slice, a map, a string or a channel.
func Len(t testing.TB, got any, want int, name ...any) {
	t.Helper()
	if n := reflect.ValueOf(got).Len(); n != want {
		t.Error(message(name, got, fmt.Sprintf("length %d, want ", n), want))
	}
}

// Between compares with two bounds, which are allowed.
func Between[T cmp.Ordered](t testing.TB, got, least, most T, name ...any) {
	t.Helper()
	if got < least || got > most {
		t.Error(message(name, got, fmt.Sprintf("want %v to ", least), most))
	}
}

// HasPrefix compares the start of a text.
func HasPrefix(t testing.TB, got, prefix string, name ...any) {
	t.Helper()
	if !strings.HasPrefix(got, prefix) {
		t.Error(message(name, got, "want a text that begins with ", prefix))
	}
}

// Contains looks for a part of a text.
func Contains(t testing.TB, got, part string, name ...any) {
	t.Helper()
	if !strings.Contains(got, part) {
		t.Error(message(name, got, "want a text with ", part))
	}
}

// NotContains looks for a part of a text. It wants none.
func NotContains(t testing.TB, got, part string, name ...any) {
	t.Helper()
	if strings.Contains(got, part) {
		t.Error(message(name, got, "want a text without ", part))
	}
}

// Count compares how often a part is in a text.
func Count(t testing.TB, got, part string, want int, name ...any) {
	t.Helper()
	if n := strings.Count(got, part); n != want {
		t.Error(times(name, got, part, n, want))
	}
}

// ErrorContains looks for a part of an error's text.
func ErrorContains(t testing.TB, err error, part string, name ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Error(message(name, err, "want an error with ", part))
	}
}

// ErrorIs compares with errors.Is.
func ErrorIs(t testing.TB, err, target error, name ...any) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Error(message(name, err, "want one that wraps ", target))
	}
}

// ErrorSatisfies asks a function about an error, for example apierrors.IsNotFound.
func ErrorSatisfies(t testing.TB, err error, is func(error) bool, name ...any) {
	t.Helper()
	if !is(err) {
		t.Error(message(name, err, "want one for ", runtime.FuncForPC(reflect.ValueOf(is).Pointer()).Name()))
	}
}
