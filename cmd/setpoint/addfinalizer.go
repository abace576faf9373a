// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func addFinalizerCommand() *cobra.Command {
	return addCommand("finalizer KIND", "clean up before objects of a kind are deleted", []string{"the kind, such as Shop"},
		func(p *project, to files, args []string) error { return addFinalizer(p, to, args[0]) })
}

func addFinalizer(p *project, to files, kind string) error {
	n, err := p.kind(to, kind)
	if err != nil {
		return err
	}
	lower := strings.ToLower(kind)
	file, controller := lower+"_finalizer.go", lower+"_controller.go"
	if to[file] != "" {
		return fmt.Errorf("the file %s exists, so the kind %s has a finalizer already; add another step there", file, kind)
	}
	if err := to.addParts(&n, "greeting_finalizer.go", "greeting_finalizer_test.go"); err != nil {
		return err
	}
	const deleted = "\tif obj.DeletionTimestamp != nil {\n\t\treturn controller.Result{}, nil\n\t}"
	return to.apply(
		importLine(controller, library+"/", library+"/finalizer"),
		below(controller, `type `+kind+`Reconciler struct \{`, "type "+kind+"Reconciler struct {",
			fmt.Sprintf("\tcleanup *finalizer.Chain[*%s.%s]\n", p.version, kind)),
		above(controller, `\tc := controller\.New\(.*`, "c := controller.New(…)",
			"\tif err := r.addCleanup(r.cleanUp); err != nil {\n\t\treturn err\n\t}\n"),
		change{
			file: controller, line: lines(exactly(deleted)), like: "if obj.DeletionTimestamp != nil { return controller.Result{}, nil }",
			text: "\tif obj.DeletionTimestamp != nil {\n\t\treturn r.finalize(ctx, obj)\n\t}\n" +
				"\tif obj, err = r.cleanup.Ensure(ctx, obj); err != nil {\n\t\treturn controller.Result{}, err\n\t}\n",
		},
	)
}

// importLine adds an import to those that begin alike.
func importLine(file, alike, imported string) change {
	return below(file, `\t(?:\w+ )?"`+exactly(alike)+`.*"`, `"`+alike+`…"`, "\t\""+imported+"\"\n")
}
