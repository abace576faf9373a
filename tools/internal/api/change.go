// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A Change is a difference in what one identifier declares.
type Change struct {
	Package    string
	Identifier string
	Before     []string // none if the identifier is new
	After      []string // none if it is gone
}

// Incompatible reports whether code that compiled may not compile any longer.
func (c Change) Incompatible() bool { return len(c.Before) > 0 }

// String returns the change as a diff.
func (c Change) String() string {
	text := ""
	for _, l := range c.Before {
		text += "- " + c.Package + ": " + l + "\n"
	}
	for _, l := range c.After {
		text += "+ " + c.Package + ": " + l + "\n"
	}
	return text
}

// Compare returns the changes from before to after, in the order of packages and identifiers. The
// members of a type that is new or gone belong to the change of the type.
func Compare(before, after Baseline) []Change {
	names := slices.Sorted(maps.Keys(before))
	for name := range after {
		if _, ok := before[name]; !ok {
			names = append(names, name)
		}
	}
	var found []Change
	for _, name := range names {
		was, is := before.identifiers(name), after.identifiers(name)
		changes := map[string]*Change{}
		collect := func(from, to map[string][]string, add func(c *Change, line string)) {
			for id, lines := range from {
				for _, l := range lines {
					if slices.Contains(to[id], l) {
						continue
					}
					top, _, _ := strings.Cut(id, ".")
					if _, kept := to[top]; !kept {
						id = top // the whole type
					}
					if changes[id] == nil {
						changes[id] = &Change{Package: name, Identifier: id}
					}
					add(changes[id], l)
				}
			}
		}
		collect(was, is, func(c *Change, l string) { c.Before = append(c.Before, l) })
		collect(is, was, func(c *Change, l string) { c.After = append(c.After, l) })
		for _, c := range changes {
			slices.Sort(c.Before)
			slices.Sort(c.After)
			found = append(found, *c)
		}
	}
	slices.SortFunc(found, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Identifier, b.Identifier))
	})
	return found
}

func (b Baseline) identifiers(name string) map[string][]string {
	byID := map[string][]string{}
	for _, l := range b[name] {
		byID[Identifier(l)] = append(byID[Identifier(l)], l)
	}
	return byID
}

// Unexplained returns the incompatible changes that no list item of the text names, with the name
// of the package and the identifier. A member is named as Type.Member or Member.
func Unexplained(changes []Change, text string) []Change {
	items := strings.Split("\n"+text, "\n- ")
	return slices.DeleteFunc(slices.Clone(changes), func(c Change) bool {
		return !c.Incompatible() || slices.ContainsFunc(items, c.namedIn)
	})
}

func (c Change) namedIn(item string) bool {
	_, member, isMember := strings.Cut(c.Identifier, ".")
	return hasWord(item, path.Base(c.Package)) && (hasWord(item, c.Identifier) || isMember && hasWord(item, member))
}

func hasWord(text, word string) bool {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`).MatchString(text)
}
