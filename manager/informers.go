// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/cache/factory"
)

// InformerFactory returns a client-go SharedInformerFactory for components that take one. Its informers are those of the
// manager's cache, started and stopped with it: see package cache/factory. It is the same one at each call, which makes no
// request and may come at any time.
func (m *Manager) InformerFactory() informers.SharedInformerFactory { return m.informers() }

func (m *Manager) newInformerFactory() informers.SharedInformerFactory {
	var client kubernetes.Interface
	c, err := kubernetes.NewForConfigAndClient(m.client.Config(), m.client.HTTPClient())
	if err == nil {
		client = c
	} else {
		m.complain(fmt.Errorf("InformerFactory: %w", err))
	}
	return factory.New(m.cache, client)
}
