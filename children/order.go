// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"errors"
	"fmt"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// order resolves the children's After options.
func (c *call[O]) order() {
	for _, d := range c.all {
		for _, other := range d.after {
			n, err := c.find(desiredOf(other))
			switch {
			case err == nil:
				d.needs = append(d.needs, n)
			case !d.done:
				d.fail(fmt.Errorf("children.After: %w", err))
			}
		}
	}
	for _, d := range c.all {
		if circle := d.way(d, map[*child]bool{}); circle != "" && !d.done {
			d.fail(fmt.Errorf("children.After makes a circle: %s; leave one out", circle))
		}
	}
}

func (c *call[O]) find(other desired) (found *child, err error) {
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
			return nil, fmt.Errorf("the %s is desired in several namespaces; set its namespace", d.short())
		}
		found = d
	}
	if found == nil {
		err = fmt.Errorf("the %s %s is not desired in this call; give it, too, or leave the option out", kind.gvk().Kind, *other.GetName())
	}
	return found, err
}

// way returns how this child comes after another one, such as "Service a after Job b", or "". It
// visits no child twice: each may come after all previous ones.
func (d *child) way(to *child, visited map[*child]bool) string {
	for _, n := range d.needs {
		if n == to {
			return d.short() + " after " + to.short()
		}
		if visited[n] {
			continue
		}
		visited[n] = true
		if rest := n.way(to, visited); rest != "" {
			return d.short() + " after " + rest
		}
	}
	return ""
}

// follows reports whether this child comes after another one. In a circle, none does.
func (d *child) follows(other *child) bool {
	return d.way(other, map[*child]bool{}) != "" && other.way(d, map[*child]bool{}) == ""
}
