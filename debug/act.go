// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"

	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
)

func actions() []string { return []string{"requeue", "pause", "resume"} }

// maxBody is the limit of a request in bytes.
const maxBody = 16 << 10

// acting is an optional interface of a controller, which *controller.Controller implements.
type acting interface {
	Act(ctx context.Context, action, key, by string) (result string, err error)
}

// act serves one action. A page of another site cannot send JSON without asking first, and gets no
// permission.
func act(all func() []manager.Controller, action string, allowed bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		example := fmt.Sprintf(`{"controller": "website", "key": "default/shop"} as application/json to /debug/%s`, action)
		mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		switch {
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "use the method POST, and send "+example, http.StatusMethodNotAllowed)
			return
		case !allowed:
			http.Error(w, "actions are off; set debug.Options.Actions, or an annotation of the object: setpoint.dev/requeue or setpoint.dev/paused", http.StatusForbidden)
			return
		case mediaType != "application/json":
			http.Error(w, "send "+example, http.StatusUnsupportedMediaType)
			return
		}
		var what struct{ Controller, Key string }
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		d.DisallowUnknownFields()
		if err := d.Decode(&what); err != nil || what.Controller == "" || what.Key == "" {
			http.Error(w, "the request names no controller and key; send "+example, http.StatusBadRequest)
			return
		}
		c := named(w, all(), what.Controller)
		if c == nil {
			return
		}
		a, ok := c.(acting)
		if !ok {
			http.Error(w, fmt.Sprintf("the controller %q has no actions", what.Controller), http.StatusConflict)
			return
		}
		by := cmp.Or(server.UserFromContext(r.Context()), "debug page")
		result, err := a.Act(r.Context(), action, what.Key, by)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		write(w, struct {
			Result string `json:"result"`
		}{result})
	})
}
