// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

const otherServer = "set the address that serves the API itself as server in the kubeconfig, or as rest.Config.Host"

// refuseRedirect returns why an answer that redirects a request is an error, nil if it may be followed or is no such answer. An
// http.Client would send the request, with its bearer token and perhaps its body, wherever the answer says, or would turn a POST
// into a GET. It sees every redirect through the transport, the second one of a chain, too.
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
	where := *req.URL
	where.User, where.RawQuery = nil, "" // not for logs
	refused := func(to, why, remedy string) error {
		return fmt.Errorf("client: %s %s: the answer %s redirects to %s, %s; %s", req.Method, where.String(), resp.Status, to, why, remedy)
	}
	to, err := req.URL.Parse(location)
	if err != nil {
		return refused("an address that is no URL", "which is not followed", otherServer)
	}
	target := to.Scheme + "://" + to.Host
	switch {
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		return refused(target, "and only reads are redirected", otherServer)
	case to.Scheme != req.URL.Scheme || !sameHost(to, req.URL) || to.User != nil:
		return refused(target, "and the credentials are for this server alone", otherServer)
	default:
		return nil
	}
}

// sameHost reports whether two URLs of one scheme are of the same host and port.
func sameHost(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		switch p := u.Port(); {
		case p != "":
			return p
		case u.Scheme == "https":
			return "443"
		default:
			return "80"
		}
	}
	return strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// followed returns an answer, or the error of a redirect that is refused.
func followed(req *http.Request, resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return resp, err
	}
	if err := refuseRedirect(req, resp); err != nil {
		if resp.Body != nil {
			_ = resp.Body.Close() // the error to report is the other one
		}
		return nil, err
	}
	return resp, nil
}
