// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/modfile"
)

const library = "github.com/setpoint-dev/setpoint"

func newCommand() *cobra.Command {
	n := inTemplate
	n.module, n.plural = "", ""
	var checkout string
	c := &cobra.Command{
		Use: "new NAME", Short: "make the project of an operator in the directory NAME", Args: want("the name of the operator, such as shop-operator"),
		RunE: func(c *cobra.Command, args []string) error {
			n.name = args[0]
			if err := errors.Join(n.validateProject(), n.validateKind()); err != nil {
				return err
			}
			if err := canCreate(c.Context(), n.module, checkout); err != nil {
				return err
			}
			if err := create(n, checkout); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "made %s: its kind is %s\nnext: cd %[1]s && make test\n", n.name, n.described())
			return err
		},
	}
	c.Flags().StringVar(&n.module, "module", "", "Go `module` (required), such as example.org/shop-operator")
	c.Flags().StringVar(&n.group, "group", n.group, "API `group`")
	c.Flags().StringVar(&n.kind, "kind", n.kind, "the first `kind`")
	kindFlags(c, &n)
	c.Flags().StringVar(&checkout, "setpoint", "", "`directory` of a checkout of Setpoint, to use it instead of a release")
	return c
}

func kindFlags(c *cobra.Command, n *names) {
	c.Flags().StringVar(&n.plural, "plural", "", "`plural` of the kind in lower case (default: by the usual rules)")
	c.Flags().BoolVar(&n.clusterScoped, "cluster-scoped", false, "objects of the kind have no namespace")
}

// want refuses other numbers of arguments.
func want(arguments ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(arguments) {
			return nil
		}
		count := map[int]string{1: "one argument", 2: "two arguments"}[len(arguments)]
		return fmt.Errorf("give %s: %s", count, strings.Join(arguments, ", and "))
	}
}

// canCreate refuses a place, a library or a module that cannot work.
func canCreate(ctx context.Context, module, checkout string) error {
	p, err := projectOf(".")
	if err != nil {
		return err
	}
	if p != nil {
		return fmt.Errorf("this directory is in the project %s; add a kind to it with 'setpoint add kind', or run 'cd %s' first", p.name, filepath.Join(p.dir, ".."))
	}
	if checkout == "" && ownVersion() == "" {
		return errors.New("this program was not built from a release, so there is no release of Setpoint for the project; give the directory of a checkout with --setpoint")
	}
	if first, _, _ := strings.Cut(module, "/"); first != "" && !strings.Contains(first, ".") {
		if _, err := run(ctx, os.TempDir(), "go", "list", module); err == nil {
			return fmt.Errorf("--module %s: Go's standard library has this name; choose another one, such as example.org/shop-operator", module)
		}
	}
	return nil
}

// create makes a project with valid names. It leaves nothing behind if it fails.
func create(n names, checkout string) (err error) {
	all, err := template(n)
	if err != nil {
		return err
	}
	if checkout != "" {
		if all["go.mod"], err = withReplace(all["go.mod"], checkout); err != nil {
			return err
		}
	}
	if err := os.Mkdir(n.name, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("the directory %s exists; choose another name, or remove it", n.name)
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(n.name))
		}
	}()
	return all.write(n.name)
}

// withReplace makes a go.mod use a checkout of the library.
func withReplace(text, checkout string) (string, error) {
	dir, err := filepath.Abs(checkout)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || modfile.ModulePath(data) != library {
		return "", fmt.Errorf("--setpoint %s: there is no checkout of %s", checkout, library)
	}
	m, err := modfile.Parse("go.mod", []byte(text), nil)
	if err != nil {
		return "", err
	}
	if err := m.AddReplace(library, "", dir, ""); err != nil {
		return "", err
	}
	out, err := m.Format()
	return string(out), err
}

func (f files) write(dir string) error {
	for _, name := range f.names() {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, []byte(f[name]), 0o644); err != nil {
			return err
		}
	}
	return nil
}
