package answers

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// checkFailure accepts an error only if it is a Status.
func (t *Transport) checkFailure(ask asked, response *http.Response) error {
	status, err := statusOf(response)
	missing := response.StatusCode == http.StatusNotFound
	if missing && (err != nil || status.Details == nil || status.Details.Name == "") {
		return t.checkUnserved(ask, err)
	}
	switch {
	case err != nil:
		return err
	case status.Status != metav1.StatusFailure || int(status.Code) != response.StatusCode:
		return doubtful("its Status says %q with the code %d", status.Status, status.Code)
	case !missing:
		return nil
	case status.Reason != metav1.StatusReasonNotFound:
		return doubtful("its Status gives the reason %q", status.Reason)
	case !ask.reads() || ask.Verb == "list" || ask.Verb == "watch":
		return nil // a write that found nothing leads to no conclusion
	case status.Details.Name != ask.Name || status.Details.Group != ask.APIGroup && status.Details.Group != "" || !ask.isNamed(status.Details.Kind):
		return doubtful("its Status is about %s %s", status.Details.Kind, status.Details.Name)
	}
	return t.pin.confirm(t, ask.Request)
}

func (ask asked) reads() bool { return ask.Method == http.MethodGet || ask.Method == http.MethodDelete }

// isNamed reports whether the name in a Status means the requested resource.
func (ask asked) isNamed(kind string) bool {
	resource, _, _ := strings.Cut(kind, "/")
	return strings.EqualFold(resource, ask.Resource)
}

// statusOf reads the Status in an answer, and restores the body.
func statusOf(response *http.Response) (*metav1.Status, error) {
	body, err := peek(response)
	if err != nil {
		return nil, err
	}
	status := &metav1.Status{}
	if bytes.HasPrefix(body, protobuf) {
		var around runtime.Unknown
		if err = around.Unmarshal(body[len(protobuf):]); err == nil {
			err = status.Unmarshal(around.Raw)
			status.TypeMeta = metav1.TypeMeta{Kind: around.Kind, APIVersion: around.APIVersion}
		}
	} else {
		err = json.Unmarshal(body, status)
	}
	if err != nil || status.Kind != "Status" || status.APIVersion != "v1" {
		return nil, doubtful("want a Status, got %s", excerpt(body))
	}
	return status, nil
}

// checkUnserved accepts a 404 without a name if the server's own list of APIs does not have the
// requested API. API servers answer so for APIs that they do not serve.
func (t *Transport) checkUnserved(ask asked, why error) error {
	if why == nil {
		why = doubtful("its Status names no object")
	}
	parts := strings.Split(strings.Trim(ask.path, "/"), "/")
	if parts[0] == "api" && len(parts) > 2 {
		return why // every cluster has the core API
	}
	var groups metav1.APIGroupList
	if err := t.get(ask.Request, "/apis", "APIGroupList", &groups); err != nil {
		return err
	}
	if parts[0] == "api" {
		return nil // a hub of custom resources only
	}
	if len(parts) < 2 {
		return why
	}
	i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == parts[1] })
	if i < 0 {
		return nil
	}
	if len(parts) < 3 {
		return why
	}
	version := schema.GroupVersion{Group: parts[1], Version: parts[2]}.String()
	if !slices.ContainsFunc(groups.Groups[i].Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.GroupVersion == version }) {
		return nil
	}
	if len(parts) < 4 {
		return why
	}
	var resources metav1.APIResourceList
	if err := t.get(ask.Request, "/apis/"+version, "APIResourceList", &resources); err != nil {
		return err
	}
	resource := ask.Resource
	if ask.Subresource != "" {
		resource += "/" + ask.Subresource
	}
	if slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }) {
		return why
	}
	return nil
}

// get sends the server another GET request with the credentials of like. It returns *doubt if
// the answer is not of the given kind.
func (t *Transport) get(like *http.Request, path, kind string, into any) error {
	r := like.Clone(like.Context())
	r.Method, r.Body, r.ContentLength, r.GetBody = http.MethodGet, nil, 0, nil
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery = t.base+path, "", ""
	r.Header.Set("Accept", "application/json")
	r.Header.Del("Content-Type")
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return err
	}
	body, err := peek(response)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || headIn(body).Kind != kind {
		return doubtful("asked for %s, it answers %q with %s", path, response.Status, excerpt(body))
	}
	return json.Unmarshal(body, into)
}
