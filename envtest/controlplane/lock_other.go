// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import "errors"

func shareLock(string) (unlock func(), err error) {
	return nil, errors.New("the control plane runs on linux and darwin only")
}
