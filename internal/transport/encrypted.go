// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
)

// checkEncrypted returns an error if credentials would be sent in clear text to another machine.
func checkEncrypted(cfg *rest.Config, server *url.URL) error {
	if server.Scheme != "http" || isLoopback(server.Hostname()) {
		return nil
	}
	what := ""
	switch {
	case cfg.BearerToken != "" || cfg.BearerTokenFile != "":
		what = "a bearer token"
	case cfg.Password != "":
		what = "a password"
	case cfg.ExecProvider != nil || cfg.AuthProvider != nil:
		what = "credentials of a plugin"
	default:
		return nil
	}
	return fmt.Errorf("the API server's address %s is plain HTTP and the rest.Config has %s, which anyone on the way could read; use an https address", server, what)
}

func isLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
