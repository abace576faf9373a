// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package mutation applies the entries of docs/mutations.txt to code. Each entry breaks a guarantee
// in one or several places.
//
// An entry is a paragraph of the file; lines that start with # are comments:
//
//	W1 workqueue TestW1_OneHolder
//	in: workqueue core.take
//	- st.held
//	+ false
//
// The first line names the guarantee, the folder of the package, and the test, which may be a
// subtest such as TestW1/busy. The second line names the package of the code, and its function,
// method, type, variable or constant. The minus lines are a piece of Go that occurs once in it: an
// expression, statements, or the head of a function, loop, if or case. White space, line breaks,
// comments and the file do not matter. The plus lines replace the piece. A minus line after a plus
// line, or another "in:" line, begins another change of the same mutation.
//
// A piece may move to a function of the same name with another receiver. A piece of three tokens
// or more may also move to a function of the same name elsewhere, and to any function of the
// package, if it occurs once in the package. If a longer piece is nowhere, the code that resembles
// it most gets the change. Names may differ there, and code that the change does not touch. It is
// an error if two places resemble the piece.
//
// Code that changes least often breaks no entry. So a piece is a whole condition, or else the
// smallest expression or statement of three tokens or more. A mutation in two places has two
// pieces.
package mutation
