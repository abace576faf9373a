// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"fmt"
	"os"
	"strconv"
)

// The environment variables of a replica.
const (
	kubeconfigOf = "ROTATION_KUBECONFIG"
	namespaceOf  = "ROTATION_NAMESPACE"
	portOf       = "ROTATION_PORT"
)

// Replica is what a replica knows from its environment.
type Replica struct {
	// Kubeconfig is the path of a file.
	Kubeconfig string
	// Namespace has the Service and the Secrets.
	Namespace string
	// Port is the port of the Service.
	Port int32
}

// FromEnvironment returns the Replica that this process is. ok is false if it is none.
func FromEnvironment() (r Replica, ok bool) {
	r.Kubeconfig, ok = os.LookupEnv(kubeconfigOf)
	r.Namespace = os.Getenv(namespaceOf)
	port, err := strconv.ParseInt(os.Getenv(portOf), 10, 32)
	r.Port = int32(port)
	return r, ok && err == nil
}

// environment returns the environment of the replica.
func (r Replica) environment() []string {
	return []string{kubeconfigOf + "=" + r.Kubeconfig, namespaceOf + "=" + r.Namespace, fmt.Sprint(portOf, "=", r.Port)}
}
