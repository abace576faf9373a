// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

// Event is a pointer to one of the structs of this package that report something.
type Event interface{ event() }

func (*CacheStarted) event()       {}
func (*CacheStopped) event()       {}
func (*InformerState) event()      {}
func (*BrokenObject) event()       {}
func (*Restored) event()           {}
func (*ClientOpened) event()       {}
func (*ClientClosed) event()       {}
func (*APIRequest) event()         {}
func (*APIAnswer) event()          {}
func (*Unfenced) event()           {}
func (*SkippedApply) event()       {}
func (*ControllerStarted) event()  {}
func (*ControllerStopped) event()  {}
func (*Reconciling) event()        {}
func (*Reconciled) event()         {}
func (*GaveUp) event()             {}
func (*Awaited) event()            {}
func (*Takeover) event()           {}
func (*Slow) event()               {}
func (*Fight) event()              {}
func (*EventSent) event()          {}
func (*EventFailed) event()        {}
func (*EventDropped) event()       {}
func (*LeaseCampaign) event()      {}
func (*LeaseTakeover) event()      {}
func (*LeaseAcquired) event()      {}
func (*LeaseRenewal) event()       {}
func (*LeaseLost) event()          {}
func (*LeaseReleased) event()      {}
func (*LeaseHolder) event()        {}
func (*LeaseUnsynced) event()      {}
func (*LeaseTrouble) event()       {}
func (*QueueOpened) event()        {}
func (*QueueClosed) event()        {}
func (*QueueAdded) event()         {}
func (*QueueDelayed) event()       {}
func (*QueueTaken) event()         {}
func (*QueueSettled) event()       {}
func (*QueueDropped) event()       {}
func (*QueueMisused) event()       {}
func (*QueuePanicked) event()      {}
func (*ShardSlots) event()         {}
func (*ShardGroup) event()         {}
func (*SourceStarted) event()      {}
func (*SourceStopped) event()      {}
func (*SourceDropped) event()      {}
func (*HandlerFailed) event()      {}
func (*HandlerBlocked) event()     {}
func (*PollFailed) event()         {}
func (*WebhookRequest) event()     {}
func (*WebhookAnswer) event()      {}
func (*WebhookCertificate) event() {}
