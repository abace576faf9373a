// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setpoint-dev/setpoint/term"
)

// An elector makes a term and ends it. The work gets its context: a client.Client refuses the
// requests of a term that has ended.
func Example() {
	token := term.Token{Lease: "f3b1", ResourceVersion: "41", Holder: "pod-a"}
	t := term.New(token, time.Now(), 13*time.Second)
	ctx := term.With(context.Background(), t)
	fmt.Println("leading as", term.FromContext(ctx).Token().Holder, "under", term.FromContext(ctx).Token())

	t.End(errors.New("the lease is lost"))
	fmt.Println(term.FromContext(ctx).Trusted())
	// Output:
	// leading as pod-a under f3b1@41
	// the term of leadership f3b1@41 has ended: the lease is lost
}
