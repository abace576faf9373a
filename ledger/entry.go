// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

// Entry is one request in a [Ledger]. The transport of client.Client keeps it up to date.
type Entry struct {
	ledger *Ledger
	write  Write   // guarded by the ledger's mutex, as is what follows; no Effect: it has written nothing
	items  []Write // of a deletecollection

	older, newer *Entry
}

// Begin enters a request in e, which is empty. The request must not be made if the error, a
// *[LateWriteError], is not nil.
func (l *Ledger) Begin(e *Entry, r Request) error {
	e.ledger, e.write.Request = l, r
	if l.enter(e) {
		return nil
	}
	err := &LateWriteError{Controller: l.origin.Controller, Key: l.origin.Key, ReconcileID: l.origin.ReconcileID(), Request: r}
	if l.origin.Late != nil {
		l.origin.Late(err)
	}
	return err
}

// Request returns the request. Do not change it. Name, Took, Status and Err may change with Update,
// the others never do.
func (e *Entry) Request() *Request { return &e.write.Request }

func (l *Ledger) enter(e *Entry) (admitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed && e.write.Stores() {
		return false
	}
	l.enterLocked(e)
	return true
}

func (l *Ledger) enterLocked(e *Entry) {
	mutates := e.write.Mutates()
	if mutates && !e.write.DryRun {
		e.write.Effect, e.write.Unknown = Pending, "there is no answer yet"
		l.wrote.Store(true)
	}
	switch {
	case mutates && l.writes < maxWrites:
		l.writes++
	case mutates:
		l.lostWrites++
		return
	case l.reads < maxReads:
		l.reads++
	default:
		l.lostReads++
		return
	}
	if e.older = l.last; e.older != nil {
		e.older.newer = e
	} else {
		l.first = e
	}
	l.last = e
}

// Update lets f change what is known of the request; an empty Effect means that it has written
// nothing. f runs under the ledger's lock. A write that becomes Stored at a version that another write
// in the ledger has made becomes Unchanged.
func (e *Entry) Update(f func(w *Write)) {
	l := e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	before := e.write.Effect
	f(&e.write)
	if e.write.Effect == Stored && before != Stored && e.write.Verb != "create" && l.madeLocked(&e.write) {
		e.write.Effect = Unchanged
	}
}

// Collected enters the objects that a deletecollection has listed, and returns those for which there
// was room.
func (e *Entry) Collected(items []Write) []Write {
	l := e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if free := int(maxWrites - l.writes); len(items) > free {
		l.lostWrites += int32(len(items) - free) //nolint:gosec // at most what 1 MiB can hold
		items = items[:free]
	}
	l.writes += int32(len(items))
	e.items = items
	return items
}

// madeLocked reports whether another write in the ledger has made this version of the object. It
// looks at the newest ones.
func (l *Ledger) madeLocked(w *Write) bool {
	for e, n := l.last, 0; e != nil && n < 64; e, n = e.older, n+1 {
		o := &e.write
		if o != w && o.Effect != "" && o.UID == w.UID && o.ResourceVersion == w.ResourceVersion && o.Resource == w.Resource && o.Group == w.Group {
			return true
		}
	}
	return false
}
