// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/manager"
)

// GET /debug/controllers/ returns the names, GET /debug/controllers/website one state.
func ExampleHandler() {
	reconcile := controller.Func[types.NamespacedName](
		func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		})
	mgr := manager.New(&rest.Config{}, manager.Options{Name: "website-operator"})
	mgr.Add(controller.New("website", reconcile, controller.Options{}))
	h := debug.Handler(mgr, debug.Options{})

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/debug/controllers/", http.NoBody))
	fmt.Print(w.Body)
	// Output:
	// [
	//   "website"
	// ]
}
