package server

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/strictjson"
	"github.com/sluice-dev/sluice/selfdescription"
)

// challengeBody is the challenge that a provider or a consumer signs an answer to.
type challengeBody struct {
	Nonce     string                    `json:"nonce"`
	Audience  string                    `json:"audience"`
	Operation selfdescription.Operation `json:"operation"`
	ExpiresAt time.Time                 `json:"expires_at"`
}

// operations that a nonce can be requested for.
var operations = []selfdescription.Operation{selfdescription.OperationPresent, selfdescription.OperationVerify, selfdescription.OperationRevoke, selfdescription.OperationLogin}

// nonce is a nonce issued by this broker.
type nonce struct {
	id    string
	until time.Time
}

// uniqueBytes make nonces unique.
const uniqueBytes = 16

// challenge issues a nonce for one operation. It is stored nowhere until it is used. It
// contains its end and its operation, sealed, so that every replica recognises it and nobody
// can forge one.
func (s *server) challenge(w http.ResponseWriter, r *http.Request) error {
	if s.DID == "" {
		return errNameless
	}
	operation := selfdescription.OperationPresent
	if r.URL.Query().Has("operation") {
		operation = selfdescription.Operation(r.URL.Query().Get("operation"))
	}
	if !slices.Contains(operations, operation) {
		return badRequest("operation: want one of %q, got %q.", operations, operation)
	}
	until := s.Clock.Now().Add(selfdescription.MaxPresentationLifetime)
	plain, _ := until.MarshalBinary()
	unique := make([]byte, uniqueBytes)
	_, _ = rand.Read(unique) // never fails
	sealed, err := s.Seal.Seal(append(unique, plain...), s.nonceOwner(operation))
	if err != nil {
		return fmt.Errorf("seal a nonce: %w", err)
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusCreated, challengeBody{base64.RawURLEncoding.EncodeToString(sealed), s.DID, operation, until.UTC()})
	return nil
}

func (s *server) nonceOwner(operation selfdescription.Operation) []byte {
	return seal.Owner("Challenge", s.Namespace, s.DID, string(operation))
}

// ours reads a nonce that was returned for an operation.
func (s *server) ours(text string, operation selfdescription.Operation) (n nonce, err error) {
	foreign := fmt.Errorf("/nonce: is none that this broker gave out to %s; ask for one at /selfdescriptions/challenges?operation=%s", operation, operation)
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return n, foreign
	}
	plain, err := s.Seal.Unseal(sealed, s.nonceOwner(operation))
	if err != nil || len(plain.Reveal()) < uniqueBytes {
		return n, foreign
	}
	n.id = hex.EncodeToString(plain.Reveal()[:uniqueBytes])
	if n.until.UnmarshalBinary(plain.Reveal()[uniqueBytes:]) != nil || !s.Clock.Now().Before(n.until) {
		return n, errors.New("/nonce: is too old; ask for another")
	}
	return n, nil
}

// nonceOf reads the nonce of a token that is not verified.
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

// usedBy returns the resource of a presenter, empty, and its list of used nonces.
func usedBy(who v1alpha1.Presenter) (client.Object, *[]v1alpha1.UsedNonce) {
	if who.Consumer != "" {
		c := &v1alpha1.Consumer{ObjectMeta: metav1.ObjectMeta{Name: who.Consumer}}
		return c, &c.Status.UsedNonces
	}
	p := &v1alpha1.Provider{ObjectMeta: metav1.ObjectMeta{Name: who.Provider}}
	return p, &p.Status.UsedNonces
}

// use records that a presenter has used a nonce, before anything is done because of it. A nonce
// works once, on all replicas: the second write conflicts, or finds the first. After a kill in
// between, the presenter requests another nonce and presents again, which does the rest. Only
// verified presentations of known presenters come here, so unknown callers cause no writes.
func (s *server) use(ctx context.Context, who v1alpha1.Presenter, n nonce) error {
	return atomically(func() error {
		presenter, nonces := usedBy(who)
		if err := s.live().Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: presenter.GetName()}, presenter); err != nil {
			return fmt.Errorf("read %s: %w", who, err)
		}
		now := s.Clock.Now()
		used := slices.DeleteFunc(*nonces, func(u v1alpha1.UsedNonce) bool { return !now.Before(u.ExpiresAt.Time) })
		if slices.ContainsFunc(used, func(u v1alpha1.UsedNonce) bool { return u.ID == n.id }) {
			return &Error{http.StatusUnprocessableEntity, "Presentation: /nonce: has been used; ask for another at /selfdescriptions/challenges."}
		}
		if len(used) >= v1alpha1.MaxUsedNonces {
			return &Error{http.StatusTooManyRequests, fmt.Sprintf("The %s has presented %d times within %s; come again later.",
				who, len(used), selfdescription.MaxPresentationLifetime)}
		}
		// Times on the hub are whole seconds: the next one after the end.
		end := n.until.Truncate(time.Second).Add(time.Second)
		*nonces = append(used, v1alpha1.UsedNonce{ID: n.id, ExpiresAt: metav1.NewTime(end)})
		if err := s.Hub.Status().Update(ctx, presenter); err != nil {
			return fmt.Errorf("write down that a nonce is used: %w", err)
		}
		return nil
	})
}

// live returns a reader of the hub itself, without the cache.
func (s *server) live() client.Reader {
	if s.Live != nil {
		return s.Live
	}
	return s.Hub
}
