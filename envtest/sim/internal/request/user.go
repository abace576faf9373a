// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
)

// Admin returns the user of requests that do not impersonate another.
func Admin() authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: "sim-admin", Groups: []string{"system:masters", "system:authenticated"}}
}

// User returns the user of a request, which may be impersonated.
func (r *Request) User() authenticationv1.UserInfo {
	user := Admin()
	if as := r.Header.Get("Impersonate-User"); as != "" {
		user = authenticationv1.UserInfo{Username: as, UID: r.Header.Get("Impersonate-Uid"), Groups: r.Header.Values("Impersonate-Group")}
		if !slices.Contains(user.Groups, "system:authenticated") {
			user.Groups = append(slices.Clone(user.Groups), "system:authenticated")
		}
	}
	for name, values := range r.Header {
		if key, ok := strings.CutPrefix(name, "Impersonate-Extra-"); ok {
			if user.Extra == nil {
				user.Extra = map[string]authenticationv1.ExtraValue{}
			}
			user.Extra[strings.ToLower(key)] = values
		}
	}
	return user
}

// FieldManager returns the name of the request's field manager: the query's, or the beginning of
// the user agent.
func (r *Request) FieldManager() string {
	if r.Manager != "" {
		return r.Manager
	}
	agent, _, _ := strings.Cut(r.HTTP.UserAgent(), "/")
	var name strings.Builder
	for _, c := range agent {
		if !unicode.IsPrint(c) {
			continue
		}
		if name.Len()+utf8.RuneLen(c) > validation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(c)
	}
	return name.String()
}
