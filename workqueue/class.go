// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

// Class says how urgent a key is. A higher class is not served first, it is served more often: each
// class has a weight, and ready keys of all classes leave in proportion to the weights (W6). While
// a key is queued it keeps the highest class that it was added with since it was last taken. A key
// that comes back by itself, with Retry, After, Park or Release, keeps the class that it was taken
// with.
type Class int8

// Three classes are named; any other value may be used too.
const (
	// Background is for the initial list and resyncs.
	Background Class = -1
	// Normal is for changes. It is the zero value.
	Normal Class = 0
	// Interactive is for changes that a person waits for.
	Interactive Class = 1
)

// String returns the name of a named class, else its number.
func (c Class) String() string {
	switch c {
	case Background:
		return "background"
	case Normal:
		return "normal"
	case Interactive:
		return "interactive"
	}
	return "class " + itoa(int(c))
}

// MarshalText returns String.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Share gives a class its weight: a class with weight 4 is served four times as often as one with
// weight 1 while both have ready keys. Retries of the class (the deliveries that Retry, After and
// AddRateLimited bring about) have a quarter of that weight, beside it.
type Share struct {
	Class Class
	// Weight is between 0.000001 and 1000000.
	Weight float64
}

// ThreeClasses are shares for the three named classes: interactive 16, normal 4, background 1.
func ThreeClasses() []Share {
	return []Share{{Interactive, 16}, {Normal, 4}, {Background, 1}}
}
