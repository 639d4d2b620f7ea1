package market

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/contracts"
	"github.com/sluice-dev/sluice/internal/usage"
)

// Sign makes a JWT of claims in the name of the broker, by the key that it had when the Signer was asked.
type Sign func(claims map[string]any) (string, error)

// Signer opens the broker's present key. It returns nil if the broker has no DID, and so no key that others find.
type Signer func(ctx context.Context) (Sign, error)

// agreementBody is a contract, as far as the caller may see it, and the same as a statement of the broker.
type agreementBody struct {
	contracts.Agreement
	Statement string `json:"statement,omitempty"`
}

// contracts answers with the contracts of an instance: an operator sees all of each, a platform those of its own
// instances without clusters, a provider what was on its clusters, without consumers.
func (s *server) contracts(c *call) error {
	id, err := c.variable("id")
	if err != nil {
		return err
	}
	name, part := id, (*contracts.Document).Whole
	switch caller := c.caller; caller.Role {
	case access.Platform:
		name, part = v1alpha1.InstanceName(caller.Name, id), (*contracts.Document).ForConsumer
	case access.Provider:
		part = func(d *contracts.Document) *contracts.Document { return d.ForProvider(caller.Name) }
	}
	none := &Error{Status: http.StatusNotFound, Code: codeNotFound, Description: "The caller sees no contract of such an instance."}
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return none // the client refuses some such names
	}
	all, err := contracts.Read(c.Context(), s.Live, s.Namespace, name)
	if err != nil {
		return err
	}
	sign, err := s.SignContract.open(c.Context())
	if err != nil {
		return err
	}
	bodies := []agreementBody{}
	for _, a := range contracts.Parts(all, part) {
		statement, err := sign(a.Claims())
		if err != nil {
			return err
		}
		bodies = append(bodies, agreementBody{a, statement})
	}
	if len(bodies) == 0 {
		return none
	}
	writeJSON(c.ResponseWriter, http.StatusOK, map[string]any{"contracts": bodies})
	return nil
}

// usageBody has the usage of clusters, and the same as a statement of the broker.
type usageBody struct {
	*usage.Report
	Statement string `json:"statement,omitempty"`
}

// usage answers GET /market/v1/usage?month=YYYY-MM&per=… with what instances had on each cluster, and what it cost: a
// provider sees its own clusters, without consumers.
func (s *server) usage(c *call) error {
	values, err := c.values()
	if err != nil {
		return err
	}
	q, err := usage.ParseQuery(values, nil, s.Clock.Now())
	if err != nil {
		return badRequest("%s.", err)
	}
	q.By = []usage.Dimension{usage.ByProvider, usage.ByCluster}
	if c.caller.Role == access.Provider {
		q.Provider = c.caller.Name
	}
	report, err := s.reports.Make(c.Context(), c.caller.String(), q)
	if errors.Is(err, usage.ErrTooMany) {
		return badRequest("The answer has %s.", err)
	}
	if err != nil {
		return err
	}
	sign, err := s.SignUsage.open(c.Context())
	if err != nil {
		return err
	}
	statement, err := sign(usage.Claims(q, report.Usage))
	if err != nil {
		return err
	}
	writeJSON(c.ResponseWriter, http.StatusOK, usageBody{report, statement})
	return nil
}

// open returns how statements are made; without a key, each is "".
func (s Signer) open(ctx context.Context) (Sign, error) {
	var sign Sign
	if s != nil {
		var err error
		if sign, err = s(ctx); err != nil {
			return nil, err
		}
	}
	if sign == nil {
		sign = func(map[string]any) (string, error) { return "", nil }
	}
	return sign, nil
}
