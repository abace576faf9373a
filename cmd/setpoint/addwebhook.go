// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func addWebhookCommand() *cobra.Command {
	return addCommand("webhook KIND", "add defaults and validation to a kind", []string{"the kind, such as Shop"},
		func(p *project, to files, args []string) error { return addWebhook(p, to, args[0]) })
}

func addWebhook(p *project, to files, kind string) error {
	n, err := p.kind(to, kind)
	if err != nil {
		return err
	}
	if file := strings.ToLower(kind) + "_webhook.go"; to[file] != "" {
		return fmt.Errorf("the file %s exists, so the kind %s has webhooks already; add more of them there", file, kind)
	}
	if err := p.addWebhookServer(to, &n); err != nil {
		return err
	}
	if err := to.addParts(&n, "greeting_webhook.go", "greeting_webhook_test.go"); err != nil {
		return err
	}
	return to.apply(pluralLine(to, &n), hooksLine(fmt.Sprintf("\tadd%sWebhooks(hooks)\n", kind)))
}

// hooksLine adds a line to newWebhooks.
func hooksLine(text string) change {
	return below("webhooks.go", `\thooks := webhook\.New\(o\)|\tadd\w+\(hooks\)`, "hooks := webhook.New(o)", text)
}

// pluralLine names the resource of a kind, because the library can only guess it.
func pluralLine(in files, n *names) change {
	text := fmt.Sprintf("\t\t{Group: %q, Kind: %q}: %q,\n", n.group, n.kind, n.plural)
	if strings.Contains(in["webhooks.go"], fmt.Sprintf("{Group: %q, Kind: %q}:", n.group, n.kind)) {
		text = ""
	}
	return below("webhooks.go", `\t\t\{Group: ".*", Kind: ".*"\}:.*`, `{Group: "shop.example.org", Kind: "Shop"}: "shops",`, text)
}

// addWebhookServer makes the operator answer webhooks, unless it does.
func (p *project) addWebhookServer(to files, n *names) error {
	if to["webhooks.go"] != "" {
		return nil
	}
	if err := to.addParts(n, "webhooks.go", "webhooks_test.go", "config/webhook/service.yaml"); err != nil {
		return err
	}
	const conversions, manifests = "config/webhook/conversions.yaml", "config/webhook/manifests.yaml"
	to[conversions], to[manifests] = "", "" // go generate writes them
	return to.apply(
		below(p.api+"/doc.go", `//go:generate .*controller-gen.*`, "//go:generate … controller-gen …",
			"//go:generate go run ../.. -manifests ../../config/webhook\n"),
		below("main.go", exactly("type settings struct {"), "type settings struct {", "\twebhooks, manifests string\n"),
		above("main.go", exactly("\tflag.Parse()"), "flag.Parse()",
			"\tflag.StringVar(&s.webhooks, \"webhooks\", \"\", \"`address` such as :9443 for the webhooks (default: none)\")\n"+
				"\tflag.StringVar(&s.manifests, \"manifests\", \"\", \"write the manifests of the webhooks into a `directory`, and exit\")\n"),
		below("main.go", exactly("func (s *settings) run(ctx context.Context) error {"), "func (s *settings) run(ctx context.Context) error {",
			"\tif s.manifests != \"\" {\n\t\treturn writeManifests(s.manifests)\n\t}\n"),
		above("main.go", `\tdebug\.Add\(mgr, .*`, "debug.Add(mgr, debug.Options{Address: s.debug})",
			"\tif s.webhooks != \"\" {\n\t\tif err := addWebhooks(mgr, s.webhooks); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n"),
		below("config/kustomization.yaml", `- (?:rbac|metrics|manager)/\S+\.yaml`, "- metrics/role.yaml", "- webhook/manifests.yaml\n- webhook/service.yaml\n"),
		below("config/manager/deployment.yaml", exactly("        - -metrics=:8443"), "- -metrics=:8443", "        - -webhooks=:9443\n"),
		below("config/manager/deployment.yaml", exactly("          containerPort: 8443"), "containerPort: 8443", "        - name: webhook\n          containerPort: 9443\n"),
		below("config/manager/network_policy.yaml", exactly("    - port: metrics\n      protocol: TCP"), "- port: metrics", "    - port: webhook\n      protocol: TCP\n"),
	)
}
