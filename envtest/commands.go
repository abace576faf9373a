// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"encoding/json"
	"os/exec"
)

func findCommands(ctx context.Context, o Options) (commands, error) {
	if o.UseKubebuilderAssets {
		return findAssets(o)
	}
	path, err := Program(ctx, o)
	if err != nil {
		return nil, err
	}
	return &program{path: path, options: o}, nil
}

// program is the control plane program. Each process is a subcommand. The other half of the
// protocol is in the module controlplane.
type program struct {
	path    string
	options Options
}

func (g *program) start(d *runDir, name string, configuration map[string]any) (*process, error) {
	configuration["protocol"] = protocol
	input, err := json.Marshal(configuration)
	if err != nil {
		return nil, err
	}
	return startProcess(name, exec.Command(g.path, name), append(input, '\n'), d, g.options)
}

func (g *program) etcd(d *runDir) (*process, error) {
	return g.start(d, etcdName, map[string]any{"dir": d.path, "lock": d.lock.Name()})
}

func (g *program) apiServer(_ context.Context, d *runDir, etcd, address string, k keys) (*process, error) {
	return g.start(d, apiServerName, map[string]any{
		"etcd": etcd, "listen": address,
		"ca": k.ca.pem, "cert": k.server.cert, "key": k.server.key, "tokenKey": k.tokenKey,
		"serviceAccounts": g.options.Controllers, "args": g.options.APIServerArgs,
	})
}

func (g *program) controllerManager(d *runDir, host string, k keys) (*process, error) {
	return g.start(d, controllerManagerName, map[string]any{
		"host": host, "ca": k.ca.pem, "cert": k.admin.cert, "key": k.admin.key,
	})
}
