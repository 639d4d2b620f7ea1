package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

// presentedBody is the result of a presentation.
type presentedBody struct {
	Report      selfdescription.Report `json:"report"`
	Credentials []credentialReport     `json:"credentials,omitempty"`
	Description string                 `json:"description,omitempty"`
}

// credentialReport is the result for one credential.
type credentialReport struct {
	Digest string                 `json:"digest"` // Subresource Integrity
	Type   string                 `json:"type,omitempty"`
	State  selfdescription.State  `json:"state"`
	Report selfdescription.Report `json:"report"`
}

var errNameless = &Error{http.StatusServiceUnavailable,
	"This broker has no public name, so nothing can be presented to it; the operator sets one with --public-url."}

// present stores the credentials of a provider or a consumer that the operator knows.
func (s *server) present(w http.ResponseWriter, r *http.Request) error {
	presentation, answer, err := s.read(w, r, selfdescription.OperationPresent)
	if err != nil {
		return err
	}
	if presentation == nil {
		answer.Description = refused(&answer.Report)
		writeJSON(w, http.StatusUnprocessableEntity, answer)
		return nil
	}
	who, err := s.presenter(presentation)
	if err != nil {
		return err
	}
	if err := s.use(r.Context(), who, presentation.nonce); err != nil {
		return err
	}
	answer.Credentials = s.verifyAll(r.Context(), presentation.Credentials)
	for i, c := range answer.Credentials {
		if !c.Report.OK() && !c.Report.Temporary {
			answer.Description = fmt.Sprintf("Nothing was taken: credential %d (%s): %s", i+1, c.Type, refused(&c.Report))
			writeJSON(w, http.StatusUnprocessableEntity, answer)
			return nil
		}
	}
	if err := s.take(r.Context(), who, presentation.Credentials); err != nil {
		return err
	}
	s.Logger.InfoContext(r.Context(), "took credentials", "of", who, "count", len(presentation.Credentials))
	writeJSON(w, http.StatusCreated, answer)
	return nil
}

// presenter returns the provider or the consumer that holds a presentation.
func (s *server) presenter(p *presented) (v1alpha1.Presenter, error) {
	who, known := s.Book.Picture().PresenterOf(p.Holder)
	if !known {
		return who, &Error{http.StatusForbidden, fmt.Sprintf(
			"%s is no provider or consumer of this broker; its operator adds one with `sluice provider add` or `sluice consumer add`.", p.Holder)}
	}
	return who, nil
}

// verify returns the result that present would have, and stores nothing. It also accepts a
// single credential.
func (s *server) verify(w http.ResponseWriter, r *http.Request) error {
	if mediaType(r) == selfdescription.MediaTypeCredential {
		compact, err := body(w, r, selfdescription.MaxCredential)
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, s.verifyAll(r.Context(), []string{compact})[0])
		return nil
	}
	presentation, answer, err := s.read(w, r, selfdescription.OperationVerify)
	if err != nil {
		return err
	}
	if presentation != nil {
		answer.Credentials = s.verifyAll(r.Context(), presentation.Credentials)
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// presented is a presentation made for an operation, and its nonce.
type presented struct {
	*selfdescription.Presentation
	nonce nonce
}

// read reads and verifies a presentation; it is nil if refused.
func (s *server) read(w http.ResponseWriter, r *http.Request, operation selfdescription.Operation) (*presented, *presentedBody, error) {
	if s.DID == "" {
		return nil, nil, errNameless
	}
	if got := mediaType(r); got != selfdescription.MediaTypePresentation {
		return nil, nil, &Error{http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Type: want %s, got %q.", selfdescription.MediaTypePresentation, got)}
	}
	compact, err := body(w, r, selfdescription.MaxPresentation)
	if err != nil {
		return nil, nil, err
	}
	return s.judge(r.Context(), compact, operation)
}

// judge verifies a presentation; it is nil if refused.
func (s *server) judge(ctx context.Context, compact string, operation selfdescription.Operation) (*presented, *presentedBody, error) {
	// The nonce first: it costs nothing, while checking a signature may cost a fetch.
	text, err := nonceOf(compact)
	var nonce nonce
	if err == nil {
		nonce, err = s.ours(text, operation)
	}
	if err != nil {
		return nil, nil, &Error{http.StatusUnprocessableEntity, "Presentation: " + err.Error() + "."}
	}
	verified, report := s.verifier().Presentation(ctx, compact, selfdescription.Expect{Audience: s.DID, Nonce: text, Operation: operation})
	if verified == nil {
		return nil, &presentedBody{Report: report}, nil
	}
	return &presented{verified, nonce}, &presentedBody{Report: report}, nil
}

func (s *server) verifier() *selfdescription.Verifier {
	return &selfdescription.Verifier{Keys: s.Keys, Statuses: s.Statuses, Issuers: s.Book.Picture().Issuers, Now: s.Clock.Now}
}

func (s *server) verifyAll(ctx context.Context, credentials []string) []credentialReport {
	out := make([]credentialReport, len(credentials))
	for i, compact := range credentials {
		_, report := s.verifier().Credential(ctx, compact)
		out[i] = credentialReport{Digest: selfdescription.DigestOf(compact).SRI(), State: report.State, Report: report}
		if parsed, err := selfdescription.Parse(compact); err == nil {
			out[i].Type = parsed.Type
		}
	}
	return out
}

func refused(r *selfdescription.Report) string {
	failed := r.Failed()
	if failed == nil {
		return ""
	}
	return fmt.Sprintf("refused at step %s: %s", failed.Name, failed.Message)
}

// body reads a token.
func body(w http.ResponseWriter, r *http.Request, most int64) (string, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if tooLarge := (*http.MaxBytesError)(nil); err != nil && errors.As(err, &tooLarge) {
		return "", &Error{http.StatusRequestEntityTooLarge, fmt.Sprintf("Body: longer than %d bytes.", tooLarge.Limit)}
	}
	if err != nil {
		return "", &Error{http.StatusBadRequest, "Body: cannot be read to its end."}
	}
	return strings.TrimSpace(string(raw)), nil
}
