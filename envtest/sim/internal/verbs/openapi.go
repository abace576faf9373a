// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/openapi"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
)

const (
	openAPIPath        = "/openapi/v3"
	openAPIProtobuf    = "com.github.proto-openapi.spec.v3.v1.0+protobuf"
	openAPIProtobufOld = "com.github.proto-openapi.spec.v3@v1.0+protobuf"
)

// openAPI answers a request below /openapi/v3: the list of documents, or one of them.
func (a *API) openAPI(r *request.Request) (*http.Response, error) {
	asked := strings.Trim(strings.TrimPrefix(r.HTTP.URL.Path, openAPIPath), "/")
	list := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for _, g := range a.groups() {
		for _, v := range g.versions {
			gv := schema.GroupVersion{Group: g.name, Version: v.name}
			path := strings.Trim(openapi.Root(gv), "/")
			if asked != "" && asked != path {
				continue
			}
			data, err := openapi.Document(gv, v.definitions())
			if err != nil {
				return nil, err
			}
			hash := fmt.Sprintf("%X", sha256.Sum256(data))
			url := openAPIPath + "/" + path + "?hash=" + hash
			if asked == path {
				return answerOpenAPI(r, data, hash, url)
			}
			list.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: url}
		}
	}
	if asked != "" {
		resp := r.Respond(http.StatusNotFound, "", nil)
		resp.Header.Del("Content-Type")
		return resp, nil
	}
	data, err := json.Marshal(list)
	// The real server guesses the type.
	return r.Respond(http.StatusOK, "text/plain; charset=utf-8", data), err
}

// answerOpenAPI answers with a document, whose current address is url.
func answerOpenAPI(r *request.Request, data []byte, hash, url string) (*http.Response, error) {
	if asked := r.Query.Get("hash"); asked != "" && asked != hash {
		resp := r.Respond(http.StatusMovedPermanently, "text/html; charset=utf-8", nil)
		resp.Header.Set("Location", url)
		return resp, nil
	}
	accept := r.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, subtype := range []string{"json", openAPIProtobuf, openAPIProtobufOld} {
			if clause.Type != "application" && clause.Type != "*" || clause.SubType != subtype && clause.SubType != "*" {
				continue
			}
			media := runtime.ContentTypeJSON
			if subtype != "json" {
				var err error
				if data, err = handler3.ToV3ProtoBinary(data); err != nil {
					return nil, err
				}
				media = "application/" + openAPIProtobuf
			}
			resp := r.Respond(http.StatusOK, media, data)
			resp.Header.Set("Etag", strconv.Quote(hash))
			resp.Header.Set("Vary", "Accept")
			return resp, nil
		}
	}
	return r.Respond(http.StatusNotAcceptable, "text/plain; charset=utf-8", nil), nil
}

// answerOpenAPIV2 answers with a document without paths. kubectl reads it about a kind that is not
// served, and then says so.
func answerOpenAPIV2(r *request.Request) *http.Response {
	if strings.Contains(r.Header.Get("Accept"), "protobuf") {
		return r.Respond(http.StatusOK, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", nil)
	}
	info := fmt.Sprintf(`{"swagger":"2.0","info":{"title":"Kubernetes","version":%q},"paths":{}}`, kinds.Version().GitVersion)
	return r.Respond(http.StatusOK, runtime.ContentTypeJSON, []byte(info))
}
