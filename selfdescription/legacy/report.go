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

// checks writes a Report; signed is the call for the step signature.
type checks struct {
	*selfdescription.Checks
	form     Form
	unsigned []string
}

func newChecks() *checks {
	return &checks{Checks: selfdescription.NewChecks(
		selfdescription.StepParse, selfdescription.StepAlgorithm, selfdescription.StepKey, selfdescription.StepSignature,
		selfdescription.StepWindow, selfdescription.StepStatus, selfdescription.StepShape, selfdescription.StepIssuer,
	)}
}

// report returns the report as far as it is written.
func (c *checks) report() Report {
	return Report{Report: c.Report(), Form: c.form, Unsigned: c.unsigned}
}

// reject ends the report: the credential is rejected.
func (c *checks) reject(err error) Report {
	c.Fail(selfdescription.Rejected, err)
	return c.report()
}

// signed records the form of the signature and the parts that it leaves unsigned.
func (c *checks) signed(form Form, credential *selfdescription.Credential, d *document) {
	c.form = form
	if form == FormGaiaX {
		c.unsigned = []string{"/proof/created", "/proof/proofPurpose", "/proof/verificationMethod"}
	}
	c.unsigned = append(c.unsigned, d.empty...)
	message := fmt.Sprintf("by %s, in the form %s", credential.Issuer, form)
	if len(c.unsigned) > 0 {
		message += "; not signed: " + strings.Join(c.unsigned, ", ")
	}
	c.Pass("%s", message)
}
