// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package analyzers_test

import (
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/setpoint-dev/setpoint/cmd/setpoint-vet/analyzers"
)

// TestAnalyzers_ReportOnlyWhatIsWanted runs all analyzers over each package of testdata. The
// comments there have the expected reports, and the files *.golden the fixed code. As one analyzer
// they load the packages once.
func TestAnalyzers_ReportOnlyWhatIsWanted(t *testing.T) {
	all := &analysis.Analyzer{Name: "all", Doc: "run all analyzers", Run: func(pass *analysis.Pass) (any, error) {
		for _, a := range analyzers.All() {
			if _, err := a.Run(pass); err != nil {
				return nil, err
			}
		}
		return nil, nil //nolint:nilnil // an analyzer without a result
	}}
	for _, a := range analyzers.All() {
		all.Requires = append(all.Requires, a.Requires...)
	}
	analysistest.RunWithSuggestedFixes(t, analysistest.TestData(), all, "./contexts", "./bridge", "./stale", "./undeclared")
}
