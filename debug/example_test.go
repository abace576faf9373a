// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
)

// GET /debug/controllers/ returns the names, GET /debug/controllers/website one state.
func ExampleControllers() {
	reconcile := controller.Func[types.NamespacedName](
		func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		})
	websites := controller.New("website", reconcile, controller.Options{})
	mux := http.NewServeMux()
	mux.Handle("/debug/controllers/", http.StripPrefix("/debug/controllers", debug.Controllers(websites)))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/debug/controllers/", http.NoBody))
	fmt.Print(w.Body)
	// Output:
	// [
	//   "website"
	// ]
}
