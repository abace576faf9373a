// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Backup is a copy of etcd's data. The cluster's Stop removes it.
type Backup struct{ dir string }

// Backup ends kube-apiserver and etcd, copies etcd's data, and starts both again, with the same
// address. It returns when kube-apiserver is ready. Clients notice an outage of a few seconds.
func (c *Cluster) Backup(ctx context.Context) (*Backup, error) {
	b := &Backup{}
	err := c.replaceData(ctx, func(p *plane) (err error) {
		if b.dir, err = os.MkdirTemp(p.dir.path, "backup-"); err != nil {
			return err
		}
		return os.CopyFS(filepath.Join(b.dir, etcdName), os.DirFS(p.dir.data()))
	})
	if err != nil {
		return nil, fmt.Errorf("envtest: cannot back up etcd: %w", err)
	}
	return b, nil
}

// Restore ends kube-apiserver and etcd, replaces etcd's data by a backup of this cluster, and
// starts both again, with the same address. It returns when kube-apiserver is ready. Objects and
// resourceVersions are as at the backup. A backup can be restored several times.
func (c *Cluster) Restore(ctx context.Context, b *Backup) error {
	err := c.replaceData(ctx, func(p *plane) error {
		if err := os.RemoveAll(p.dir.data()); err != nil {
			return err
		}
		return os.CopyFS(p.dir.data(), os.DirFS(filepath.Join(b.dir, etcdName)))
	})
	if err != nil {
		return fmt.Errorf("envtest: cannot restore etcd: %w", err)
	}
	return nil
}

func (d *runDir) data() string { return filepath.Join(d.path, etcdName) }

// replaceData calls replace while neither kube-apiserver nor etcd runs.
func (c *Cluster) replaceData(ctx context.Context, replace func(*plane) error) error {
	if c.plane == nil {
		return errNotOurs
	}
	if err := c.KillAPIServer(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.StartTimeout, c.options.startTimeoutCause())
	defer cancel()
	if err := c.plane.restartEtcd(ctx, replace); err != nil {
		return err
	}
	return c.plane.startAPIServer(ctx, c.options)
}

// restartEtcd kills etcd: otherwise it would remove the run directory. Its data is in files.
func (p *plane) restartEtcd(ctx context.Context, between func(*plane) error) error {
	p.change.Lock()
	defer p.change.Unlock()
	etcd := p.find(etcdName)
	if etcd == nil {
		return errors.New("the control plane has been stopped; start another one")
	}
	p.remove(etcd)
	if err := etcd.kill(); err != nil {
		return err
	}
	if err := between(p); err != nil {
		return err
	}
	if err := os.Remove(p.dir.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	etcd, err := p.commands.etcd(p.dir)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.processes = append([]*process{etcd}, p.processes...) // it is stopped last
	p.mu.Unlock()
	_, err = etcd.ready(ctx)
	return err
}
