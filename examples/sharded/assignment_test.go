// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
)

// assignment is what the group's Lease says. The test reads it with code of its own, which has none
// of the members' mistakes.
type assignment struct {
	Listed    bool         `json:"listed"`
	Waiting   []memberLife `json:"waiting"`
	Members   []memberLife `json:"members"`
	Slots     []slot       `json:"slots"`
	Handovers []struct {
		Written string `json:"written"`
	} `json:"handovers"`
}

type memberLife struct {
	Name string `json:"name"`
	Term uint64 `json:"term"`
}

func (m memberLife) String() string { return fmt.Sprintf("%s@%d", m.Name, m.Term) }

type slot struct {
	Owner *int `json:"o"` // places in Members
	To    *int `json:"to"`
	Ready bool `json:"ready"`
}

// readAssignment fails if the text was edited.
func readAssignment(text string) (a assignment, ok bool) {
	body, sum, found := strings.Cut(text, `,"sum":`)
	h := fnv.New64a()
	_, _ = h.Write([]byte(body)) // it cannot fail
	if !found || sum != fmt.Sprintf(`"%016x"}`, h.Sum64()) {
		return a, false
	}
	return a, json.Unmarshal([]byte(text), &a) == nil && len(a.Slots) == len(record{}.owner)
}
