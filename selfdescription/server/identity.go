package server

import (
	_ "embed" // the description of the routes
	"fmt"
	"net/http"

	"github.com/go-jose/go-jose/v4"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/identity"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
)

// identity reads the broker's DID and public keys, newest first.
func (s *server) identity(r *http.Request) (name string, keys []jose.JSONWebKey, err error) {
	id := &v1alpha1.Identity{}
	err = s.Hub.Get(r.Context(), client.ObjectKey{Namespace: s.Namespace, Name: v1alpha1.IdentityName}, id)
	if client.IgnoreNotFound(err) != nil {
		return "", nil, fmt.Errorf("read the broker's identity: %w", err)
	}
	if err != nil || s.DID == "" || len(id.Spec.Keys) == 0 {
		return "", nil, &Error{http.StatusNotFound, "This broker has no identity of its own."}
	}
	if keys, err = identity.PublicKeys(id); err != nil {
		return "", nil, err
	}
	return id.Spec.DID, keys, nil
}

// didDocument returns the document that did:web resolvers fetch.
func (s *server) didDocument(w http.ResponseWriter, r *http.Request) error {
	name, keys, err := s.identity(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, did.WebDocument(name, keys))
	return nil
}

func (s *server) keySet(w http.ResponseWriter, r *http.Request) error {
	_, keys, err := s.identity(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: keys})
	return nil
}

// vocabulary returns the JSON-LD context of Sluice's own terms.
func (s *server) vocabulary(w http.ResponseWriter, _ *http.Request) error {
	for _, c := range selfdescription.Contexts() {
		if c.URL == selfdescription.ContextSluice {
			w.Header().Set("Content-Type", "application/ld+json")
			_, _ = w.Write(c.Document) // the client has gone
		}
	}
	return nil
}

//go:embed openapi.json
var openAPI []byte

func (s *server) description(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI) // the client has gone
	return nil
}
