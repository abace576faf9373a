// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// order resolves the children's After options.
func (c *call[O]) order() {
	for _, d := range c.all {
		for _, other := range d.after {
			n, err := c.find(desiredOf(other))
			switch {
			case err != nil && !d.done:
				d.fail(fmt.Errorf("children.After: %w", err))
			case err == nil:
				d.needs, n.dependents = append(d.needs, n), append(n.dependents, d)
			}
		}
	}
	var circular []*child
	for _, d := range c.all {
		cycle := d.cycle()
		if cycle == nil {
			continue
		}
		circular = append(circular, d)
		if !d.done {
			d.fail(fmt.Errorf("children.After makes a circle: %s; leave one out", strings.Join(cycle, " after ")))
		}
	}
	for _, d := range circular {
		// Delete would wait forever.
		d.dependents = slices.DeleteFunc(d.dependents, func(other *child) bool { return slices.Contains(circular, other) })
	}
}

func (c *call[O]) find(other *desired) (found *child, err error) {
	if argument.IsNil(other.ApplyConfiguration) || other.GetName() == nil {
		return nil, errors.New("it was given nil, or a child without a name")
	}
	kind, err := c.set.kindOf(other.ApplyConfiguration)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", *other.GetName(), err)
	}
	for _, d := range c.all {
		if d.kind != kind || d.Name.Name != *other.GetName() {
			continue
		}
		if ns := other.GetNamespace(); ns != nil && *ns != "" && *ns != d.Name.Namespace {
			continue
		}
		if found != nil && found.Name != d.Name {
			return nil, fmt.Errorf("the %s %s is desired in several namespaces; set its namespace", d.Kind.Kind, d.Name.Name)
		}
		found = d
	}
	if found == nil {
		err = fmt.Errorf("the %s %s is not desired in this call; give it, too, or leave the option out", kind.gvk().Kind, *other.GetName())
	}
	return found, err
}

// cycle returns the names of a circle that begins with the child.
func (d *child) cycle() (names []string) {
	for _, on := range d.way(d, map[*child]bool{}) {
		names = append(names, on.Kind.Kind+" "+on.Name.Name)
	}
	return names
}

// way returns the children from this one to one before it, or nil. It visits no child twice: each
// may come after all previous ones.
func (d *child) way(to *child, visited map[*child]bool) []*child {
	for _, n := range d.needs {
		if n == to {
			return []*child{d, to}
		}
		if visited[n] {
			continue
		}
		visited[n] = true
		if rest := n.way(to, visited); rest != nil {
			return append([]*child{d}, rest...)
		}
	}
	return nil
}
