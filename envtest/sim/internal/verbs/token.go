// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// token is what a continue parameter holds.
type token struct {
	APIVersion string `json:"v"`
	Version    int64  `json:"rv"`
	Start      string `json:"start"`
}

func encodeContinue(version int64, start string) string {
	data, err := json.Marshal(token{"meta.k8s.io/v1", version, "/" + start})
	if err != nil {
		panic(err) // it is a struct of strings
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// decodeContinue returns a token's version, which is negative for an inconsistent list, and path.
func decodeContinue(text string) (version int64, start string, err error) {
	var t token
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	switch {
	case err != nil:
		return 0, "", fmt.Errorf("continue key is not valid: %w", err)
	case t.APIVersion != "meta.k8s.io/v1":
		return 0, "", fmt.Errorf("continue key is not valid: server does not recognize this encoded version %s", t.APIVersion)
	case t.Version == 0:
		return 0, "", fmt.Errorf("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.Start == "":
		return 0, "", fmt.Errorf("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")
	}
	start = "/" + strings.TrimPrefix(t.Start, "/")
	if path.Clean(start) != start {
		return 0, "", fmt.Errorf("continue key is not valid: %s", t.Start)
	}
	return t.Version, start[1:], nil
}
