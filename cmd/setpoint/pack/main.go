// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command pack writes the files of a directory into one file in the txtar format, because go:embed
// leaves out a directory with a go.mod.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/tools/txtar"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: pack DIRECTORY FILE")
		os.Exit(2)
	}
	if err := pack(os.DirFS(os.Args[1]), os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(from fs.FS, to string) error {
	all := &txtar.Archive{Comment: []byte("A copy of examples/template. Do not edit it; run go generate.\n")}
	err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := fs.ReadFile(from, name)
		all.Files = append(all.Files, txtar.File{Name: path.Clean(name), Data: data})
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(to, txtar.Format(all), 0o644)
}
