// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/hook"
)

// Lead is the work of a process in a term. It begins new work until take is done, and runs it with
// the context work. On a stop, only take ends. When the term is lost, both end with the cause, such
// as leaderelection.ErrLost. The Lease is held until Lead has returned. Both contexts carry the
// [Term].
type Lead func(take, work context.Context) error

// Elector decides when this process works under a Lease. A *leaderelection.Elector makes one
// replica the leader. A *shard.Group makes all replicas members of a group. Run may be called once
// at a time; all other methods are safe for concurrent use.
type Elector interface {
	// String returns NAMESPACE/NAME of the Lease.
	fmt.Stringer
	// Identity is this process's holderIdentity in the Lease.
	Identity() string
	// Run calls lead in each term until ctx is done, and returns lead's result.
	Run(ctx context.Context, lead Lead) error
	// Name is the name of Check, such as leader-election-operator.
	Name() string
	// Check returns an error if the process must be replaced. It ignores its argument, which may be
	// nil.
	Check(*http.Request) error
}

// Host is the program for which an [Elector] is made: the manager. All methods are safe for
// concurrent use.
type Host interface {
	// Name is the name of the program.
	Name() string
	// Identity is the default identity of this process, the same in all its Leases, or "" if it has
	// none yet.
	Identity() string
	// Config returns a configuration for requests for the Lease, with the host's user agent and
	// Hook. It shares connections that the host closes in the end. With nil, it is for the host's
	// API server.
	Config(of *rest.Config) (*rest.Config, error)
	// Hook joins the host's Hook with the one of the Elector's options. An Elector reports its
	// terms to it: this is how the host learns and logs them.
	Hook(own *hook.Hook) *hook.Hook
	// SlotCache returns the SlotCache of the host's cache for the objects of a Partition. An
	// Elector that is a Partition calls it once.
	SlotCache(of Partition) SlotCache
	// AddRecorder lets the host run a Recorder of the Elector.
	AddRecorder(r Recorder)
}

// Recorder sends what the work of terms records, such as Kubernetes events. *events.Recorder
// implements it. All methods are safe for concurrent use.
type Recorder interface {
	// Validate returns the mistakes of its options, before Run.
	Validate() error
	// Run sends until ctx is done. The host then calls Close.
	Run(ctx context.Context) error
	// Flush sends what was recorded before the call, and in the term of ctx, if it has one. The
	// host calls it before it releases the Lease.
	Flush(ctx context.Context) error
	// Close sends what is left until ctx is done.
	Close(ctx context.Context) error
}
