// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

const assetsVariable = "KUBEBUILDER_ASSETS"

type assets struct {
	dir     string
	options Options
}

func findAssets(o Options) (commands, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	dir := os.Getenv(assetsVariable)
	if dir == "" {
		return nil, fmt.Errorf("envtest: Options.UseKubebuilderAssets needs the environment variable %s; set it to the directory of etcd and kube-apiserver", assetsVariable)
	}
	names := []string{etcdName, apiServerName}
	if o.Controllers {
		names = append(names, controllerManagerName)
	}
	for _, name := range names {
		if err := checkProgram(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("envtest: %s=%s: %s: %w; name a directory that has it, or unset the option that needs it (Options.UseKubebuilderAssets, Options.Controllers)", assetsVariable, dir, name, err)
		}
	}
	return &assets{dir: dir, options: o}, nil
}

// supervise runs "$@" until standard input ends, then removes $1 (data) and $2 (lock) unless $1 is
// empty. Only an otherwise idle shell can block on the pipe, so a subshell reads it, with the read
// builtin: killing it leaves no child behind. File 3 is the lock; all these processes inherit it.
const supervise = `exec 4<&0; data=$1; lock=$2; shift 2
"$@" </dev/null >&2 4<&- &
child=$!
trap 'kill -KILL $child 2>/dev/null; wait $child; test -z "$data" || rm -rf "$data" "$lock"; exit 0' TERM
{ while read -r line; do :; done; kill -TERM $$; } <&4 4<&- &
reader=$!
wait $child; status=$?
kill -KILL $reader 2>/dev/null
exit $status`

func (a *assets) start(name string, d *runDir, data, lock string, args ...string) (*process, error) {
	args = append([]string{"-c", supervise, name, data, lock, filepath.Join(a.dir, name)}, args...)
	return startProcess(name, exec.Command("/bin/sh", args...), nil, d, a.options)
}

func (a *assets) etcd(d *runDir) (*process, error) {
	const nowhere = "http://127.0.0.1:1" // never dialed
	p, err := a.start(etcdName, d, d.path, d.lock.Name(),
		"--data-dir="+filepath.Join(d.path, "etcd"),
		"--listen-client-urls=unix://"+d.socket(),
		"--advertise-client-urls="+nowhere,
		"--listen-peer-urls=unix://"+filepath.Join(d.path, "peer.sock"),
		"--initial-advertise-peer-urls="+nowhere,
		"--initial-cluster=default="+nowhere,
		"--unsafe-no-fsync", "--heartbeat-interval=20", "--election-timeout=100", "--log-level=warn")
	if err != nil {
		return nil, err
	}
	p.address = "unix://" + d.socket()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.socket())
		}}, Timeout: time.Second}
	p.probe = func() error { return get(client, "http://etcd/health") }
	return p, nil
}

func get(client *http.Client, url string) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", response.Status)
	}
	return nil
}

// apiServer tries several ports: kube-apiserver cannot choose one itself, and another process may
// take the one that we found.
func (a *assets) apiServer(ctx context.Context, d *runDir, etcd, address string, k keys) (*process, error) {
	files := map[string][]byte{"ca.crt": k.ca.pem, "server.crt": k.server.cert, "server.key": k.server.key}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(d.path, name), content, 0o600); err != nil {
			return nil, dataError(err)
		}
	}
	const tries = 5
	for try := 1; ; try++ {
		host, port, err := freePort(address)
		if err != nil {
			return nil, err
		}
		p, err := a.start(apiServerName, d, "", "", append(a.apiServerArgs(d, etcd, host, port, k), a.options.APIServerArgs...)...)
		if err != nil {
			return nil, err
		}
		p.address = net.JoinHostPort(host, port)
		p.probe = func() error {
			conn, err := net.Dial("tcp", p.address)
			if err == nil {
				err = conn.Close()
			}
			return err
		}
		if _, err = p.ready(ctx); err == nil {
			return p, nil
		}
		if try == tries || !strings.Contains(p.tail.String(), "address already in use") {
			return nil, errors.Join(err, p.stop(a.options.StopTimeout))
		}
	}
}

func (a *assets) apiServerArgs(d *runDir, etcd, host, port string, k keys) []string {
	args := []string{
		"--etcd-servers=" + etcd,
		"--bind-address=" + host, "--secure-port=" + port, "--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // an Endpoints object may not name a loopback address
		"--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged=true",
		"--authorization-mode=RBAC",
		"--client-ca-file=" + filepath.Join(d.path, "ca.crt"),
		"--tls-cert-file=" + filepath.Join(d.path, "server.crt"),
		"--tls-private-key-file=" + filepath.Join(d.path, "server.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + k.tokenKey,
		"--service-account-key-file=" + k.tokenKey,
	}
	if !a.options.Controllers {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

func freePort(address string) (host, port string, err error) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		return "", "", fmt.Errorf("envtest: no port for %s: %w", apiServerName, err)
	}
	return net.SplitHostPort(l.Addr().String())
}

func (a *assets) controllerManager(d *runDir, host string, k keys) (*process, error) {
	path := filepath.Join(d.path, "controller-manager.kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfig(host, k.ca.pem, k.admin), path); err != nil {
		return nil, dataError(err)
	}
	p, err := a.start(controllerManagerName, d, "", "",
		"--kubeconfig="+path, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000",
		// All releases know these short names.
		"--controllers=garbagecollector,namespace,deployment,replicaset,job,serviceaccount,root-ca-cert-publisher")
	if err != nil {
		return nil, err
	}
	p.probe = func() error { return nil } // no port to probe; its objects show that it works
	return p, nil
}
