package answers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// head is the beginning of every object and list of the API.
type head struct {
	metav1.TypeMeta
	Metadata struct {
		Name            string `json:"name"`
		Namespace       string `json:"namespace"`
		ResourceVersion string `json:"resourceVersion"`
		UID             string `json:"uid"`
	}
}

// checkObject accepts an object only if it is the requested one, or a list of such objects.
func checkObject(ask asked, response *http.Response) error {
	h, err := headOf(response)
	if err != nil {
		return err
	}
	isList := strings.HasSuffix(h.Kind, "List") && (ask.Verb == "list" || ask.Verb == "deletecollection")
	want := schema.GroupVersion{Group: ask.APIGroup, Version: ask.APIVersion}.String()
	switch {
	case h.Kind == "" || h.APIVersion == "":
		return doubtful("it is not an object of the API: it has no kind or no apiVersion")
	case h.Kind == "Status" && h.APIVersion == "v1":
		return checkDone(ask, response)
	case ask.Subresource != "" && ask.Subresource != "status":
		return nil // of another API, such as a TokenRequest
	case h.APIVersion != want && !isPartial(h):
		return doubtful("want an object of %s, got %s %s", want, h.APIVersion, h.Kind)
	case ask.Verb == "list" && !isList:
		return doubtful("want a list of %s, got a %s", ask.Resource, h.Kind)
	case !isPartial(h) && !isOf(ask, strings.TrimSuffix(h.Kind, "List"), isList):
		return doubtful("want %s, got a %s", ask.Resource, h.Kind)
	case isList && h.Metadata.ResourceVersion == "" && scheme.Scheme.IsGroupRegistered(ask.APIGroup):
		return doubtful("the list has no resource version")
	case !isList && ask.Name != "" && h.Metadata.Name != ask.Name:
		return doubtful("want %s %s, got %q", ask.Resource, ask.Name, h.Metadata.Name)
	case !isList && ask.Name != "" && ask.Resource != "namespaces" && h.Metadata.Namespace != ask.Namespace:
		return doubtful("want %s in %s, got it in %q", ask.Resource, ask.Namespace, h.Metadata.Namespace)
	}
	return nil
}

// isPartial reports whether the server sent only the metadata, as the request asked.
func isPartial(h *head) bool {
	return strings.HasPrefix(h.APIVersion, "meta.k8s.io/") && strings.HasPrefix(h.Kind, "PartialObjectMetadata")
}

// isOf reports whether a kind belongs to the requested resource, by the names of Kubernetes'
// own APIs. In other APIs the kind cannot be derived from the resource's name.
func isOf(ask asked, kind string, isList bool) bool {
	if !scheme.Scheme.IsGroupRegistered(ask.APIGroup) {
		return true
	}
	if isList && kind == "" {
		return true // a plain List
	}
	plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return plural.Resource == ask.Resource || singular.Resource == ask.Resource
}

// checkDone accepts a Status that reports success. Deletions and some subresources are answered
// so.
func checkDone(ask asked, response *http.Response) error {
	status, err := statusOf(response)
	if err != nil {
		return err
	}
	deletes := ask.Verb == "delete" || ask.Verb == "deletecollection"
	switch {
	case !deletes && (ask.Subresource == "" || ask.Verb == "get"):
		return doubtful("want an object, got a Status")
	case status.Status != metav1.StatusSuccess:
		return doubtful("the Status says %q", status.Status)
	case status.Details != nil && status.Details.Name != "" && ask.Name != "" && status.Details.Name != ask.Name:
		return doubtful("the Status is about %q", status.Details.Name)
	}
	return nil
}

// checkDiscovery accepts lists of APIs only.
func checkDiscovery(response *http.Response) error {
	body, err := peek(response)
	if err != nil {
		return err
	}
	switch h := headIn(body); h.Kind {
	case "APIVersions", "APIGroup", "APIGroupList", "APIResourceList", "APIGroupDiscoveryList":
		return nil
	}
	return doubtful("want a list of APIs, got %s", excerpt(body))
}

// protobuf is the beginning of an object in Kubernetes' protocol buffers.
var protobuf = []byte("k8s\x00")

// headOf reads the beginning of an answer's body, and restores the body.
func headOf(response *http.Response) (*head, error) {
	var first [4]byte
	n, err := io.ReadFull(response.Body, first[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	rest := response.Body
	response.Body = joined{io.MultiReader(bytes.NewReader(first[:n]), rest), rest}
	if bytes.Equal(first[:n], protobuf) {
		return protobufHead(response)
	}
	var read bytes.Buffer
	h, err := jsonHead(io.TeeReader(response.Body, &read))
	response.Body = joined{io.MultiReader(&read, response.Body), rest}
	if IsTooLarge(err) {
		return nil, err
	}
	if err != nil {
		return nil, doubtful("it is not an object of the API: %s", excerpt(read.Bytes()))
	}
	return h, nil
}

// joined is a body whose beginning has been read already.
type joined struct {
	io.Reader
	io.Closer
}

// jsonHead reads up to kind, version and metadata, which API servers write first.
func jsonHead(body io.Reader) (*head, error) {
	decoder := json.NewDecoder(body)
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, errors.Join(err, errors.New("no object"))
	}
	h, fields := &head{}, 0
	for decoder.More() && fields < 3 {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var into any = &json.RawMessage{}
		switch key {
		case "kind":
			into = &h.Kind
		case "apiVersion":
			into = &h.APIVersion
		case "metadata":
			into = &h.Metadata
		default:
			fields--
		}
		if err := decoder.Decode(into); err != nil {
			return nil, err
		}
		fields++
	}
	return h, nil
}

// protobufHead reads an object in Kubernetes' protocol buffers: a runtime.Unknown around
// a message whose first field is the metadata.
func protobufHead(response *http.Response) (*head, error) {
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	var around runtime.Unknown
	if err := around.Unmarshal(body[len(protobuf):]); err != nil {
		return nil, doubtful("it is not an object of the API: %v", err)
	}
	h := &head{TypeMeta: metav1.TypeMeta{Kind: around.Kind, APIVersion: around.APIVersion}}
	if h.Kind == "Status" {
		return h, nil
	}
	field, kind, n := protowire.ConsumeTag(around.Raw)
	if n < 0 || field != 1 || kind != protowire.BytesType {
		return h, nil // an object without metadata
	}
	metadata, n := protowire.ConsumeBytes(around.Raw[n:])
	if n < 0 {
		return nil, doubtful("its metadata is cut off")
	}
	if strings.HasSuffix(h.Kind, "List") {
		var list metav1.ListMeta
		err = list.Unmarshal(metadata)
		h.Metadata.ResourceVersion = list.ResourceVersion
	} else {
		var object metav1.ObjectMeta
		err = object.Unmarshal(metadata)
		h.Metadata.Name, h.Metadata.Namespace, h.Metadata.UID = object.Name, object.Namespace, string(object.UID)
	}
	if err != nil {
		return nil, doubtful("its metadata cannot be read: %v", err)
	}
	return h, nil
}

// headIn returns the kind and version in a complete body.
func headIn(body []byte) head {
	var h head
	_ = json.Unmarshal(body, &h) // a body that is not an object has no kind
	return h
}
