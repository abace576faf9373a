// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
)

// checkEncrypted returns an error if credentials would go to another machine in clear text.
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
	return fmt.Errorf("the API server's address %s is plain HTTP and the rest.Config has %s, which the network could read; use an https address", server, what)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

func followed(req *http.Request, resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return resp, err
	}
	if err := refuseRedirect(req, resp); err != nil {
		if resp.Body != nil {
			_ = resp.Body.Close() // the refusal is the error to report
		}
		return nil, err
	}
	impatient(resp)
	return resp, nil
}

// refuseRedirect returns an error for a redirect that must not be followed. An http.Client would
// send the bearer token and perhaps the body to any address, or turn a POST into a GET. Each
// redirect of a chain passes here.
func refuseRedirect(req *http.Request, resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil
	}
	location := resp.Header.Get("Location")
	if location == "" {
		return nil // an http.Client does not follow it
	}
	why := ""
	switch to, err := req.URL.Parse(location); {
	case err != nil:
		why = "an address that is no URL, which is not followed"
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		why = origin(to) + ", and only reads are redirected"
	case origin(to) != origin(req.URL) || to.User != nil:
		why = origin(to) + ", and the credentials are for this server alone"
	default:
		return nil
	}
	where := *req.URL
	where.User, where.RawQuery = nil, "" // may be secret
	return fmt.Errorf("client: %s %s: the answer %s redirects to %s; set the address that serves the API itself as server in the kubeconfig, or as rest.Config.Host",
		req.Method, where.String(), resp.Status, why)
}

func origin(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if u.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	} else {
		host = strings.TrimSuffix(host, ":80")
	}
	return u.Scheme + "://" + host
}
