// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// At a stop, the informer may end before CatchUp hears of the source's end. The error names the
// source (S10).
func TestS10_NamesTheSourceThatStoppedBeforeItsInformer(t *testing.T) {
	theInformer := errors.New("it has stopped")
	ended := make(chan struct{})
	catchUp := func(err error, stop bool) error {
		return unless(t.Context(), ended, func(context.Context) error {
			if stop {
				close(ended)
			}
			return err
		})
	}
	testkit.ErrorIs(t, catchUp(theInformer, false), theInformer, "the source runs, and the error")
	if err := catchUp(theInformer, true); !errors.Is(err, errStopped) || errors.Is(err, theInformer) {
		t.Errorf("the source has stopped, and the error is %v", err)
	}
	testkit.Equal(t, catchUp(nil, false), nil, "all was handled before the source stopped, and the error")
}
