// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/setpoint-dev/setpoint/term"
)

// An elector makes a term and ends it. The work gets its context, and a transport sends requests
// through its fence.
func Example() {
	token := term.Token{Lease: "f3b1", ResourceVersion: "41", Holder: "pod-a"}
	t := term.New(token, time.Now(), 13*time.Second)
	ctx := term.With(context.Background(), t)
	fmt.Println("leading as", term.FromContext(ctx).Token().Holder, "under", term.FromContext(ctx).Token())

	t.End(errors.New("the lease is lost"))
	fmt.Println(term.FromContext(ctx).Trusted())

	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "https://kubernetes.default.svc/api/v1/nodes", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = term.FromContext(req.Context()).RoundTrip(http.DefaultTransport, req, true)
	fmt.Println("refused:", errors.Is(err, term.ErrFenced))
	// Output:
	// leading as pod-a under f3b1@41
	// the term of leadership f3b1@41 has ended: the lease is lost
	// refused: true
}
