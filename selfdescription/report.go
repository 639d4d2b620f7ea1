package selfdescription

import (
	"fmt"
	"strings"
)

// StepName names a step of a verification or of an admission.
type StepName string

// The steps, in their order. A credential goes through parse to shape and issuer; a
// presentation through parse to window; an admission through references to admit, without
// shape.
const (
	StepParse      StepName = "parse"      // well-formed, of a known media type, contexts known
	StepAlgorithm  StepName = "algorithm"  // on the allowlist; before any key is looked for
	StepKey        StepName = "key"        // the issuer publishes the key, of the algorithm's kind
	StepSignature  StepName = "signature"  //
	StepWindow     StepName = "window"     // valid now; a presentation also has the expected audience and nonce
	StepStatus     StepName = "status"     // neither revoked nor suspended; skipped if shape or issuer fails, although they come later
	StepShape      StepName = "shape"      // the attributes that its type must have
	StepReferences StepName = "references" // offering to provider to data centre
	StepIssuer     StepName = "issuer"     // the issuer may issue this type
	StepBinding    StepName = "binding"    // made for this very cluster
	StepAdmit      StepName = "admit"      // all requirements are met
)

// Result is the result of a step.
type Result string

// Results.
const (
	Passed  Result = "passed"
	Failed  Result = "failed"
	Skipped Result = "skipped" // does not apply, or an earlier step failed
)

// Step is one step of a verification.
type Step struct {
	Name   StepName `json:"step"`
	Result Result   `json:"result"`
	// Message is the finding or, for a failed step, the path, the rule and the value. It never
	// holds a signature or a nonce.
	Message string `json:"message,omitempty"`
}

// State is the overall result for a credential.
type State string

// States.
const (
	Verified  State = "verified"
	Rejected  State = "rejected"
	Expired   State = "expired"
	Revoked   State = "revoked"
	Suspended State = "suspended" // by its status list; may be lifted
)

// Report lists what was checked, step by step. It has all steps that apply to the verified
// object, in order; steps after a failed one are skipped.
type Report struct {
	Steps []Step `json:"steps"`
	// State is the overall result.
	State State `json:"state"`
	// Temporary means that the network failed, not the credential: a key or a status list could
	// not be fetched. Try again later.
	Temporary bool `json:"temporary,omitempty"`
}

// OK reports whether at least one step was done and none failed.
func (r *Report) OK() bool { return len(r.Steps) > 0 && r.Failed() == nil }

// Failed returns the step that failed, or nil.
func (r *Report) Failed() *Step {
	for i := range r.Steps {
		if r.Steps[i].Result == Failed {
			return &r.Steps[i]
		}
	}
	return nil
}

// String has one line per step.
func (r *Report) String() string {
	var b strings.Builder
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "%-10s %-7s %s\n", s.Name, s.Result, s.Message)
	}
	return b.String()
}

// Checks writes a report: each call is about the next of its steps.
type Checks struct {
	report Report
	todo   []StepName
}

// NewChecks returns the writer of a report with these steps.
func NewChecks(steps ...StepName) *Checks {
	return &Checks{report: Report{State: Verified}, todo: steps}
}

// Report returns the report as far as it is written.
func (c *Checks) Report() Report { return c.report }

// Pass records that the step has passed.
func (c *Checks) Pass(format string, args ...any) { c.record(Passed, fmt.Sprintf(format, args...)) }

// Skip records that the step does not apply.
func (c *Checks) Skip(format string, args ...any) { c.record(Skipped, fmt.Sprintf(format, args...)) }

// Fail ends the report: the steps after this one are skipped.
func (c *Checks) Fail(state State, err error) Report {
	c.report.State = state
	c.record(Failed, err.Error())
	for len(c.todo) > 0 {
		c.Skip("a step before it failed")
	}
	return c.report
}

// FailFor is Fail, for an error that may be temporary.
func (c *Checks) FailFor(err error) Report {
	c.report.Temporary = isTemporary(err)
	return c.Fail(Rejected, err)
}

func (c *Checks) record(result Result, message string) {
	c.report.Steps = append(c.report.Steps, Step{Name: c.todo[0], Result: result, Message: message})
	c.todo = c.todo[1:]
}
