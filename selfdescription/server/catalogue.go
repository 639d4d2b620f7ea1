package server

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gorilla/mux"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/shape"
)

const (
	defaultPage = 50
	mostPage    = 500
)

// entry is one credential in a list.
type entry struct {
	Digest        string                   `json:"digest"` // Subresource Integrity
	Href          string                   `json:"href"`
	MediaType     string                   `json:"mediaType"`
	Type          string                   `json:"type,omitempty"`
	Subject       string                   `json:"subject,omitempty"`
	Issuer        string                   `json:"issuer,omitempty"`
	Provider      string                   `json:"provider,omitempty"`
	ValidFrom     *metav1.Time             `json:"validFrom,omitempty"`
	ValidUntil    *metav1.Time             `json:"validUntil,omitempty"`
	Verification  v1alpha1.CredentialState `json:"verification"`
	Countries     []string                 `json:"countries,omitempty"`
	LabelLevel    string                   `json:"labelLevel,omitempty"`
	Certification string                   `json:"certification,omitempty"`
}

func summary(sd *v1alpha1.SelfDescription) entry {
	digest := selfdescription.DigestOf(sd.Spec.Credential)
	e := entry{
		Digest: digest.SRI(), Href: "/selfdescriptions/" + digest.String(), MediaType: selfdescription.MediaTypeCredential,
		Type: sd.Status.Type, Subject: sd.Status.Subject, Issuer: sd.Status.Issuer, Provider: sd.Spec.Provider,
		ValidFrom: sd.Status.ValidFrom, ValidUntil: sd.Status.ValidUntil, Verification: state(sd),
		Countries: sd.Status.Countries, LabelLevel: sd.Status.LabelLevel, Certification: sd.Status.Certification,
	}
	if sd.Spec.Legacy {
		e.MediaType = "application/ld+json"
	}
	return e
}

// state returns the latest known state of a credential.
func state(sd *v1alpha1.SelfDescription) v1alpha1.CredentialState {
	switch {
	case sd.Spec.Revoked:
		return v1alpha1.CredentialRevoked
	case sd.Status.State == "":
		return v1alpha1.CredentialPending
	}
	return sd.Status.State
}

// listBody is one page. Continue is the token for the next page, if there is one.
type listBody struct {
	Items    []entry `json:"items"`
	Continue string  `json:"continue,omitempty"`
}

// list returns credentials in the order of their digests, a page at a time.
func (s *server) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	wanted, err := filterOf(query)
	if err != nil {
		return err
	}
	limit := defaultPage
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostPage {
			return badRequest("limit: want a number from 1 to %d, got %q.", mostPage, text)
		}
	}
	after := query.Get("continue")
	if raw, err := hex.DecodeString(after); err != nil || len(raw) != 0 && len(raw) != 32 {
		return badRequest("continue: want the value from the previous page, got %q.", after)
	}
	var all v1alpha1.SelfDescriptionList
	if err := s.Hub.List(r.Context(), &all, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list credentials: %w", err)
	}
	items := slices.Clone(all.Items) // the cache's own slice must not be reordered
	slices.SortFunc(items, func(x, y v1alpha1.SelfDescription) int { return strings.Compare(x.Name, y.Name) })
	page := listBody{Items: []entry{}}
	for i := range items {
		digest := strings.TrimPrefix(items[i].Name, "sd-")
		if digest <= after || !isPublished(&items[i]) || !wanted(&items[i]) {
			continue
		}
		if len(page.Items) == limit {
			page.Continue = strings.TrimPrefix(page.Items[limit-1].Href, "/selfdescriptions/")
			break
		}
		page.Items = append(page.Items, summary(&items[i]))
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

// filterOf reads the filters. A credential must match every filter, by one of its values. An
// unknown filter is refused rather than ignored.
func filterOf(query map[string][]string) (func(*v1alpha1.SelfDescription) bool, error) {
	wanted := map[string]func(*v1alpha1.SelfDescription) []string{
		"type":          func(sd *v1alpha1.SelfDescription) []string { return []string{sd.Status.Type} },
		"country":       func(sd *v1alpha1.SelfDescription) []string { return sd.Status.Countries },
		"label":         func(sd *v1alpha1.SelfDescription) []string { return []string{sd.Status.LabelLevel} },
		"certification": func(sd *v1alpha1.SelfDescription) []string { return []string{sd.Status.Certification} },
		"status":        func(sd *v1alpha1.SelfDescription) []string { return []string{string(state(sd))} },
		"provider":      func(sd *v1alpha1.SelfDescription) []string { return []string{sd.Spec.Provider} },
		"issuer":        func(sd *v1alpha1.SelfDescription) []string { return []string{sd.Status.Issuer} },
		"subject":       func(sd *v1alpha1.SelfDescription) []string { return []string{sd.Status.Subject} },
	}
	asked := map[string][]string{}
	for name, values := range query {
		switch {
		case name == "limit" || name == "continue":
		case wanted[name] == nil:
			return nil, badRequest("%s: there is no such filter.", name)
		case name == "country":
			for _, value := range values {
				alpha2, ok := shape.Country(value)
				if !ok {
					return nil, badRequest("country: %q is no country of ISO 3166-1.", value)
				}
				asked[name] = append(asked[name], alpha2)
			}
		default:
			asked[name] = values
		}
	}
	return func(sd *v1alpha1.SelfDescription) bool {
		for name, values := range asked {
			has := wanted[name](sd)
			if !slices.ContainsFunc(values, func(value string) bool { return slices.Contains(has, value) }) {
				return false
			}
		}
		return true
	}, nil
}

func badRequest(format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// find returns the credential by the digest in the URL, in hexadecimal.
func (s *server) find(r *http.Request) (*v1alpha1.SelfDescription, error) {
	text := mux.Vars(r)["digest"]
	digest, err := hex.DecodeString(text)
	if err != nil || len(digest) != 32 {
		return nil, badRequest("digest: want a SHA-256 in hexadecimal, got %q.", text)
	}
	sd := &v1alpha1.SelfDescription{}
	err = s.Hub.Get(r.Context(), client.ObjectKey{Namespace: s.Namespace, Name: v1alpha1.SelfDescriptionName([32]byte(digest))}, sd)
	if apierrors.IsNotFound(err) {
		return nil, errNoCredential
	}
	return sd, err
}

var errNoCredential = &Error{http.StatusNotFound, "There is no credential with this digest."}

// isPublished reports whether everybody may read a credential: what providers present is in the catalogue, and what
// consumers present is for the broker alone.
func isPublished(sd *v1alpha1.SelfDescription) bool { return sd.Spec.Consumer == "" }

// published is find for everybody.
func (s *server) published(r *http.Request) (*v1alpha1.SelfDescription, error) {
	sd, err := s.find(r)
	if err == nil && !isPublished(sd) {
		return nil, errNoCredential
	}
	return sd, err
}

// fetch returns a credential as it was received or, as JSON, its content. The content of a
// digest never changes.
func (s *server) fetch(w http.ResponseWriter, r *http.Request) error {
	sd, err := s.published(r)
	if err != nil {
		return err
	}
	content, contentType := []byte(sd.Spec.Credential), summary(sd).MediaType
	if !sd.Spec.Legacy && prefersJSON(r.Header.Get("Accept")) {
		if content, err = base64.RawURLEncoding.DecodeString(strings.Split(sd.Spec.Credential, ".")[1]); err != nil {
			return fmt.Errorf("decode credential %s: %w", sd.Name, err)
		}
		contentType = "application/vc"
	}
	etag := `"` + selfdescription.DigestOf(string(content)).String() + `"`
	w.Header().Set("Vary", "Accept")
	w.Header().Set("ETag", etag)
	w.Header().Set("Cache-Control", "max-age=31536000, immutable")
	if slices.Contains(strings.Split(strings.ReplaceAll(r.Header.Get("If-None-Match"), " ", ""), ","), etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(content) // the client has gone
	return nil
}

// prefersJSON reports whether a client lists JSON before JWT.
func prefersJSON(accept string) bool {
	for _, part := range strings.Split(accept, ",") {
		switch kind, _, _ := strings.Cut(strings.TrimSpace(part), ";"); kind {
		case selfdescription.MediaTypeCredential, "application/jwt":
			return false
		case "application/json", "application/ld+json", "application/vc":
			return true
		}
	}
	return false
}

// reportBody is the result of a credential's verification.
type reportBody struct {
	entry
	VerifiedAt *metav1.Time                `json:"verifiedAt,omitempty"`
	Report     []v1alpha1.VerificationStep `json:"report"`
}

func (s *server) report(w http.ResponseWriter, r *http.Request) error {
	sd, err := s.published(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, reportBody{summary(sd), sd.Status.VerifiedAt, sd.Status.Report})
	return nil
}

// evidence returns the probes that a measurement rests on, counted by latency, so that its digest can be checked.
func (s *server) evidence(w http.ResponseWriter, r *http.Request) error {
	sd, err := s.published(r)
	if err != nil {
		return err
	}
	if sd.Spec.Evidence == "" {
		return &Error{http.StatusNotFound, "This credential has no evidence here."}
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(sd.Spec.Evidence)) // the client has gone
	return nil
}
