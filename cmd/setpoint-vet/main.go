// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command setpoint-vet finds mistakes in the Reconciles of operators on Setpoint, also of those on
// crbridge.
//
//	go install github.com/setpoint-dev/setpoint/cmd/setpoint-vet@latest
//	setpoint-vet ./...
//	setpoint-vet -fix ./...
//	go vet -vettool=$(which setpoint-vet) ./...
//
// Package analyzers describes the checks.
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/setpoint-dev/setpoint/cmd/setpoint-vet/analyzers"
)

func main() { multichecker.Main(analyzers.All()...) }
