// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"go/types"
	"path"
	"regexp"
	"strings"
)

// writer writes types as a file of the package would, without the names of parameters.
type writer struct{ pkg *types.Package }

func (w writer) typ(t types.Type) string {
	switch t := t.(type) {
	case *types.Signature:
		return "func" + w.signature(t)
	case *types.Pointer:
		return "*" + w.typ(t.Elem())
	case *types.Slice:
		return "[]" + w.typ(t.Elem())
	case *types.Array:
		return fmt.Sprintf("[%d]%s", t.Len(), w.typ(t.Elem()))
	case *types.Map:
		return "map[" + w.typ(t.Key()) + "]" + w.typ(t.Elem())
	}
	return types.TypeString(t, w.qualify)
}

func (w writer) signature(s *types.Signature) string {
	in, out := w.tuple(s.Params()), w.tuple(s.Results())
	if last := len(in) - 1; s.Variadic() {
		in[last] = "..." + strings.TrimPrefix(in[last], "[]")
	}
	text := "(" + strings.Join(in, ", ") + ")"
	switch len(out) {
	case 0:
		return text
	case 1:
		return text + " " + out[0]
	}
	return text + " (" + strings.Join(out, ", ") + ")"
}

func (w writer) tuple(t *types.Tuple) []string {
	var all []string
	for v := range t.Variables() {
		all = append(all, w.typ(v.Type()))
	}
	return all
}

func (w writer) typeParams(list *types.TypeParamList) string {
	if list.Len() == 0 {
		return ""
	}
	var all []string
	for p := range list.TypeParams() {
		all = append(all, p.Obj().Name()+" "+w.typ(p.Constraint()))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

var apiVersion = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// qualify returns the usual name of an import: metav1 for k8s.io/apimachinery/pkg/apis/meta/v1.
func (w writer) qualify(p *types.Package) string {
	switch {
	case p == w.pkg:
		return ""
	case apiVersion.MatchString(p.Name()):
		return path.Base(path.Dir(p.Path())) + p.Name()
	}
	return p.Name()
}
