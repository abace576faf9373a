// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// order resolves the children's After options.
func (c *call[O]) order() {
	byID := map[identity]*child{}
	for _, d := range c.all {
		if d.kind != nil && d.Name.Name != "" {
			byID[d.id()] = d
		}
	}
	for _, d := range c.all {
		for _, other := range d.after {
			n, err := c.find(byID, desiredOf(other))
			switch {
			case err != nil && !d.done:
				d.fail(fmt.Errorf("children.After: %w", err))
			case err == nil:
				d.needs = append(d.needs, n)
			}
		}
	}
	for _, d := range c.all {
		if cycle := d.cycle(nil); cycle != nil && !d.done {
			d.fail(fmt.Errorf("children.After makes a circle: %s; leave one out", strings.Join(cycle, " after ")))
		}
	}
}

func (c *call[O]) find(byID map[identity]*child, other *desired) (*child, error) {
	if other.ApplyConfiguration == nil || other.GetName() == nil {
		return nil, errors.New("it was given nil, or a child without a name")
	}
	kind, err := c.set.kindOf(other.ApplyConfiguration)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", *other.GetName(), err)
	}
	of := kind.gvk().GroupKind()
	for id, d := range byID {
		if id.kind != of || id.key.Name != *other.GetName() {
			continue
		}
		if ns := other.GetNamespace(); ns == nil || *ns == "" || *ns == id.key.Namespace {
			return d, nil
		}
	}
	return nil, fmt.Errorf("the %s %s is not desired in this call; give it, too, or leave the option out", of.Kind, *other.GetName())
}

// cycle returns the names of a circle that begins with the child.
func (d *child) cycle(way []*child) (names []string) {
	if i := slices.Index(way, d); i == 0 {
		for _, on := range append(way, d) {
			names = append(names, on.Kind.Kind+" "+on.Name.Name)
		}
		return names
	} else if i > 0 {
		return nil // a circle without the first
	}
	way = append(slices.Clip(way), d)
	for _, n := range d.needs {
		if names = n.cycle(way); names != nil {
			return names
		}
	}
	return nil
}

// dependents returns the children that come after one.
func (c *call[O]) dependents(of *child) (all []*child) {
	for _, d := range c.all {
		if slices.Contains(d.needs, of) {
			all = append(all, d)
		}
	}
	return all
}
