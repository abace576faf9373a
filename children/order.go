// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/setpoint-dev/setpoint/client"
)

// order resolves the children's After options.
func (c *call[O]) order(ctx context.Context) {
	for _, d := range c.all {
		for _, other := range d.after {
			n, err := c.find(ctx, other)
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

// find returns the desired child with the kind and the name of another one.
func (c *call[O]) find(ctx context.Context, config client.ApplyConfiguration) (*child, error) {
	other := &child{desired: desiredOf(config)}
	err := c.identify(ctx, other)
	if found := c.desired[other.identity()]; found != nil && found.isKnown() {
		return found, nil
	}
	if err == nil {
		err = errors.New("it is not desired in this call; give it, too, or leave the option out")
	}
	return nil, fmt.Errorf("%s: %w", cmp.Or(other.title(), "a child"), err)
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
