package server

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/strictjson"
	"github.com/sluice-dev/sluice/selfdescription"
)

// challengeBody is what a provider signs an answer to.
type challengeBody struct {
	Nonce     string    `json:"nonce"`
	Audience  string    `json:"audience"`
	ExpiresAt time.Time `json:"expires_at"`
}

// presentedBody says what became of a presentation.
type presentedBody struct {
	Report      selfdescription.Report `json:"report"`
	Credentials []credentialReport     `json:"credentials,omitempty"`
	Description string                 `json:"description,omitempty"`
}

// credentialReport says what was found of one credential.
type credentialReport struct {
	Digest string                 `json:"digest"` // Subresource Integrity
	Type   string                 `json:"type,omitempty"`
	State  selfdescription.State  `json:"state"`
	Report selfdescription.Report `json:"report"`
}

var errNameless = &Error{http.StatusServiceUnavailable,
	"This broker has no name of its own, so nothing can be presented to it; its operator gives it one with --public-url."}

var errChanged = &Error{http.StatusConflict, "The credential has just changed; repeat the request."}

// challenge gives out a nonce. It is kept nowhere: it says itself until when it is
// good, sealed so that every replica knows it again and nobody can make one.
func (s *server) challenge(w http.ResponseWriter, _ *http.Request) error {
	if s.DID == "" {
		return errNameless
	}
	until := s.Clock.Now().Add(selfdescription.MaxPresentationLifetime)
	plain, _ := until.MarshalBinary()
	unique := make([]byte, 8)
	_, _ = rand.Read(unique) // never fails
	sealed, err := s.Seal.Seal(append(unique, plain...), s.nonceOwner())
	if err != nil {
		return fmt.Errorf("seal a nonce: %w", err)
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusCreated, challengeBody{base64.RawURLEncoding.EncodeToString(sealed), s.DID, until.UTC()})
	return nil
}

func (s *server) nonceOwner() []byte { return seal.Owner("Challenge", s.Namespace, s.DID, "") }

// ours checks a nonce that came back.
func (s *server) ours(nonce string) error {
	sealed, err := base64.RawURLEncoding.DecodeString(nonce)
	if err != nil {
		return errors.New("/nonce: is not one of this broker's")
	}
	plain, err := s.Seal.Unseal(sealed, s.nonceOwner())
	if err != nil || len(plain.Reveal()) < 8 {
		return errors.New("/nonce: is not one of this broker's")
	}
	var until time.Time
	if until.UnmarshalBinary(plain.Reveal()[8:]) != nil || !s.Clock.Now().Before(until) {
		return errors.New("/nonce: is too old; ask for another")
	}
	return nil
}

// present takes the credentials of a provider that the operator knows.
func (s *server) present(w http.ResponseWriter, r *http.Request) error {
	presentation, answer, err := s.read(w, r)
	if err != nil {
		return err
	}
	if presentation == nil {
		answer.Description = refused(&answer.Report)
		writeJSON(w, http.StatusUnprocessableEntity, answer)
		return nil
	}
	provider, known := s.Book.Picture().ProviderOf(presentation.Holder)
	if !known {
		return &Error{http.StatusForbidden, fmt.Sprintf("%s is no provider of this broker; its operator adds one with `sluice provider add`.", presentation.Holder)}
	}
	answer.Credentials = s.verifyAll(r.Context(), presentation.Credentials)
	for i, c := range answer.Credentials {
		if !c.Report.OK() && !c.Report.Temporary {
			answer.Description = fmt.Sprintf("Nothing was taken: credential %d (%s): %s", i+1, c.Type, refused(&c.Report))
			writeJSON(w, http.StatusUnprocessableEntity, answer)
			return nil
		}
	}
	for _, compact := range presentation.Credentials {
		if err := s.keep(r.Context(), compact, provider); err != nil {
			return err
		}
	}
	s.Logger.InfoContext(r.Context(), "took credentials", "provider", provider, "count", len(presentation.Credentials))
	writeJSON(w, http.StatusCreated, answer)
	return nil
}

// keep stores a credential for a provider. Its digest names it, so it is stored once,
// and speaks for the clusters of who presented it first: unless its issuer presents
// it, or who presented it is no provider any more.
func (s *server) keep(ctx context.Context, compact, provider string) error {
	sd := &v1alpha1.SelfDescription{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(compact))},
		Spec:       v1alpha1.SelfDescriptionSpec{Credential: compact, Provider: provider},
	}
	err := s.Hub.Create(ctx, sd)
	if apierrors.IsAlreadyExists(err) {
		err = s.takeOver(ctx, sd)
	}
	if apierrors.IsConflict(err) {
		return errChanged
	}
	if err != nil {
		return fmt.Errorf("store a credential: %w", err)
	}
	return nil
}

// takeOver makes a stored credential the provider's, if it is its issuer or nobody else's.
func (s *server) takeOver(ctx context.Context, presented *v1alpha1.SelfDescription) error {
	stored := &v1alpha1.SelfDescription{}
	err := s.Hub.Get(ctx, client.ObjectKeyFromObject(presented), stored)
	if err != nil || stored.Spec.Provider == presented.Spec.Provider {
		return client.IgnoreNotFound(err) // the cache will have it soon, from the same provider
	}
	picture := s.Book.Picture()
	holder, _ := picture.Provider(presented.Spec.Provider)
	_, others := picture.Provider(stored.Spec.Provider)
	if parsed, err := selfdescription.Parse(presented.Spec.Credential); err != nil || others && parsed.Issuer != holder {
		return nil
	}
	stored = stored.DeepCopy()
	stored.Spec.Provider = presented.Spec.Provider
	return s.Hub.Update(ctx, stored)
}

// verify says what present would find, and keeps nothing. It takes a credential too.
func (s *server) verify(w http.ResponseWriter, r *http.Request) error {
	if mediaType(r) == selfdescription.MediaTypeCredential {
		compact, err := body(w, r, selfdescription.MaxCredential)
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, s.verifyAll(r.Context(), []string{compact})[0])
		return nil
	}
	presentation, answer, err := s.read(w, r)
	if err != nil {
		return err
	}
	if presentation != nil {
		answer.Credentials = s.verifyAll(r.Context(), presentation.Credentials)
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// read reads and verifies a presentation; it is nil where it was refused.
func (s *server) read(w http.ResponseWriter, r *http.Request) (*selfdescription.Presentation, *presentedBody, error) {
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
	// The nonce first: it costs nothing, while a signature may cost a fetch.
	nonce, err := nonceOf(compact)
	if err == nil {
		err = s.ours(nonce)
	}
	if err != nil {
		return nil, nil, &Error{http.StatusUnprocessableEntity, "Presentation: " + err.Error() + "."}
	}
	presentation, report := s.verifier().Presentation(r.Context(), compact, selfdescription.Expect{Audience: s.DID, Nonce: nonce})
	return presentation, &presentedBody{Report: report}, nil
}

// nonceOf reads the nonce of a token that has not been verified.
func nonceOf(compact string) (string, error) {
	parts := strings.Split(compact, ".")
	if len(parts) != 3 {
		return "", errors.New("is not a JWT in compact serialisation")
	}
	payload := struct {
		Nonce string `json:"nonce"`
	}{}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = strictjson.Decode(strings.NewReader(string(raw)), strictjson.Limits{Object: true}, &payload)
	}
	if err != nil {
		return "", fmt.Errorf("payload: %w", err)
	}
	if payload.Nonce == "" {
		return "", errors.New("/nonce: is missing; ask for one at /selfdescriptions/challenges")
	}
	return payload.Nonce, nil
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

// revoke withdraws a credential here: its presenter may, with a presentation of it
// that answers a fresh challenge.
func (s *server) revoke(w http.ResponseWriter, r *http.Request) error {
	sd, err := s.find(r)
	if err != nil {
		return err
	}
	presentation, answer, err := s.read(w, r)
	if err != nil {
		return err
	}
	if presentation == nil {
		answer.Description = refused(&answer.Report)
		writeJSON(w, http.StatusUnprocessableEntity, answer)
		return nil
	}
	provider, known := s.Book.Picture().ProviderOf(presentation.Holder)
	if !known || provider != sd.Spec.Provider || len(presentation.Credentials) != 1 || presentation.Credentials[0] != sd.Spec.Credential {
		return &Error{http.StatusForbidden, "Only who presented a credential may withdraw it, with a presentation of that one alone."}
	}
	if !sd.Spec.Revoked {
		sd = sd.DeepCopy()
		sd.Spec.Revoked, sd.Spec.RevokedBecause = true, "withdrawn by "+presentation.Holder
		if err := s.Hub.Update(r.Context(), sd); err != nil {
			if apierrors.IsConflict(err) {
				return errChanged
			}
			return fmt.Errorf("revoke a credential: %w", err)
		}
		s.Logger.InfoContext(r.Context(), "a credential was withdrawn", "provider", provider, "credential", sd.Name)
	}
	writeJSON(w, http.StatusOK, summary(sd))
	return nil
}
