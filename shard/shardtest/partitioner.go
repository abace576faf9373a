// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shardtest

import (
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/shard"
)

// CheckPartitioner returns an error for each key to which by gives no slot, or another one in
// another call. It makes 20 calls for each key, concurrently: with -race, they also find data
// races.
//
// It cannot see what differs between processes, such as an environment variable, or between
// releases. For that, compare slots with constants in your test.
func CheckPartitioner(by shard.Partitioner, keys ...types.NamespacedName) error {
	const calls = 20
	type answer struct {
		slot uint8
		err  error
	}
	var all [calls][]answer
	var running sync.WaitGroup
	for i := range all {
		running.Go(func() {
			for _, key := range keys {
				slot, err := by.Slot(key)
				all[i] = append(all[i], answer{slot, err})
			}
		})
	}
	running.Wait()
	var wrong []error
	for n, key := range keys {
		for i := range all {
			first, a := all[0][n], all[i][n]
			if a.err == nil && first.err == nil && a.slot != first.slot {
				a.err = fmt.Errorf("%s gives %s slot %d and slot %d; it must depend on the key only", by, key, first.slot, a.slot)
			}
			if a.err != nil {
				wrong = append(wrong, a.err)
				break
			}
		}
	}
	return errors.Join(wrong...)
}
