// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package argument_test

import (
	"fmt"
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIsNil(t *testing.T) {
	for _, v := range []any{nil, (*http.ServeMux)(nil), http.HandlerFunc(nil), http.Header(nil), []int(nil), (chan int)(nil)} {
		testkit.Equal(t, argument.IsNil(v), true, fmt.Sprintf("%T is nil", v))
	}
	for _, v := range []any{0, "", struct{}{}, &http.ServeMux{}, http.Header{}} {
		testkit.Equal(t, argument.IsNil(v), false, fmt.Sprintf("%T is not nil", v))
	}
}
