package legacy

import (
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/selfdescription"
)

// Report is the report of an import, with the same steps as that of a JSON Web Token.
type Report struct {
	selfdescription.Report
	// Form of the signature; empty if none fits.
	Form Form `json:"form,omitempty"`
	// Unsigned are JSON pointers to the members of the document that the signature does not
	// cover: they may be forged.
	Unsigned []string `json:"unsigned,omitempty"`
}

// checks writes a Report: each call is about the next step; signed is the call for the step
// signature.
type checks struct {
	report Report
	todo   []selfdescription.StepName
}

func newChecks() *checks {
	return &checks{
		report: Report{Report: selfdescription.Report{State: selfdescription.Verified}},
		todo: []selfdescription.StepName{
			selfdescription.StepParse, selfdescription.StepAlgorithm, selfdescription.StepKey, selfdescription.StepSignature,
			selfdescription.StepWindow, selfdescription.StepStatus, selfdescription.StepShape, selfdescription.StepIssuer,
		},
	}
}

func (c *checks) pass(format string, args ...any) {
	c.record(selfdescription.Passed, fmt.Sprintf(format, args...))
}

func (c *checks) skip(format string, args ...any) {
	c.record(selfdescription.Skipped, fmt.Sprintf(format, args...))
}

// fail ends the report: the steps after this one are skipped.
func (c *checks) fail(state selfdescription.State, err error) Report {
	c.report.State = state
	c.record(selfdescription.Failed, err.Error())
	for len(c.todo) > 0 {
		c.skip("a step before it failed")
	}
	return c.report
}

func (c *checks) record(result selfdescription.Result, message string) {
	c.report.Steps = append(c.report.Steps, selfdescription.Step{Name: c.todo[0], Result: result, Message: message})
	c.todo = c.todo[1:]
}

// signed records the form of the signature and the parts that it leaves unsigned.
func (c *checks) signed(form Form, credential *selfdescription.Credential, d *document) {
	c.report.Form = form
	if form == FormGaiaX {
		c.report.Unsigned = []string{"/proof/created", "/proof/proofPurpose", "/proof/verificationMethod"}
	}
	c.report.Unsigned = append(c.report.Unsigned, d.empty...)
	message := fmt.Sprintf("by %s, in the form %s", credential.Issuer, form)
	if len(c.report.Unsigned) > 0 {
		message += "; not signed: " + strings.Join(c.report.Unsigned, ", ")
	}
	c.pass("%s", message)
}
