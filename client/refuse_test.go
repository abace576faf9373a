// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestPatch_RefusesOtherTypes: nothing is sent.
func TestPatch_RefusesOtherTypes(t *testing.T) {
	server := sim.NewServer(sim.ConfigMaps, sim.Deployments)
	maps, ctx := client.For[*corev1.ConfigMap](newClient(t, server, client.Options{})), t.Context()
	for pt, want := range map[types.PatchType][]string{
		types.ApplyYAMLPatchType: {"patch ConfigMap default/a: the patch type", "apply-patch+yaml", "server-side apply; use Apply"},
		types.ApplyCBORPatchType: {"apply-patch+cbor", "use Apply"},
		"application/patch":      {"patch ConfigMap default/a: the patch type", `"application/patch"`, "unknown; use types.JSONPatchType"},
		"":                       {"unknown"},
	} {
		_, err := maps.Patch(ctx, name("default", "a"), pt, []byte("{}"))
		wants(t, err, want...)
		_, err = client.SubresourceOf[*corev1.ConfigMap](maps, "status").Patch(ctx, name("default", "a"), pt, []byte("{}"))
		wants(t, err, append(want[1:len(want):len(want)], "patch the status of ConfigMap default/a")...)
	}
	testkit.Len(t, server.Requests(), 0)
}

// TestTooLarge names the object, whether the API server or etcd refuses it, and the remedy.
func TestTooLarge(t *testing.T) {
	refusals := map[string]metav1.Status{
		"the API server": {Code: http.StatusRequestEntityTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge, Message: "Request entity too large: limit is 3145728"},
		"etcd":           {Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "etcdserver: request is too large"},
		"gRPC": {Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
			Message: "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097265 vs. 2097152)"},
		"somebody else": {Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "rpc error: code = ResourceExhausted desc = quota"},
	}
	for who, status := range refusals {
		t.Run(who, func(t *testing.T) {
			server := sim.NewServer(sim.ConfigMaps)
			server.Intercept(func(r *sim.Request) (*http.Response, error) {
				if r.Verb == "discover" {
					return nil, nil
				}
				return r.FailWith(status)
			})
			maps, ctx := client.For[*corev1.ConfigMap](newClient(t, server, client.Options{})), t.Context()
			big := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "big"}}
			for verb, err := range map[string]error{
				"create": second(maps.Create(ctx, big)),
				"update": second(maps.Update(ctx, big)),
				"patch":  second(maps.Patch(ctx, name("default", "big"), types.MergePatchType, []byte("{}"))),
				"apply":  second(maps.Apply(ctx, coreac.ConfigMap("big", "default"))),
			} {
				const says = " ConfigMap default/big: the object is too large for the API server, which stores about 1.5 MiB at most; split it"
				testkit.Equal(t, strings.HasPrefix(err.Error(), verb+says), who != "somebody else", verb, err)
				wants(t, err, status.Message)
				testkit.Equal(t, apierrors.ReasonForError(err), status.Reason, verb, "the reason")
			}
		})
	}
}

// TestNew_RefusesToSendCredentialsInClearText: to another machine, that is.
func TestNew_RefusesToSendCredentialsInClearText(t *testing.T) {
	for what, tt := range map[string]struct {
		cfg     rest.Config
		refused bool
	}{
		"token":               {rest.Config{Host: "http://10.0.0.1:8080", BearerToken: "t"}, true},
		"token, no scheme":    {rest.Config{Host: "cluster.example:8080", BearerToken: "t"}, true},
		"token file":          {rest.Config{Host: "http://cluster.example", BearerTokenFile: "token"}, true},
		"password":            {rest.Config{Host: "http://cluster.example", Username: "u", Password: "p"}, true},
		"plugin":              {rest.Config{Host: "http://cluster.example", ExecProvider: &api.ExecConfig{Command: "x", InteractiveMode: "Never", APIVersion: "client.authentication.k8s.io/v1"}}, true},
		"https":               {rest.Config{Host: "https://cluster.example", BearerToken: "t"}, false},
		"nothing to read":     {rest.Config{Host: "http://cluster.example"}, false},
		"this machine":        {rest.Config{Host: "http://127.0.0.1:8001", BearerToken: "t"}, false},
		"this machine, v6":    {rest.Config{Host: "http://[::1]:8001", BearerToken: "t"}, false},
		"this machine's name": {rest.Config{Host: "http://localhost:8001", BearerToken: "t"}, false},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := client.New(&tt.cfg, client.Options{})
			if !tt.refused && err != nil {
				t.Errorf("refused: %v", err)
			}
			if tt.refused {
				wants(t, err, "client.New: the API server's address http://", "is plain HTTP", "use an https address")
			}
		})
	}
}
