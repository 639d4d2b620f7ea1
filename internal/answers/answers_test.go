package answers_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeprotobuf "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/internal/answers"
)

// server gives one answer to the request of a test, and others, by path, to the transport's own
// requests.
type server struct {
	*httptest.Server
	code   int
	body   string
	others map[string]string
}

func newServer(t *testing.T) *server {
	s := &server{others: map[string]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if body, ok := s.others[r.URL.Path]; ok {
			_, _ = io.WriteString(w, body)
			return
		}
		if !strings.HasPrefix(s.body, "{") {
			w.Header().Set("Content-Type", "text/plain")
		}
		w.WriteHeader(s.code)
		_, _ = io.WriteString(w, s.body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) config(pin *answers.Pin) *rest.Config {
	config := &rest.Config{Host: s.URL, QPS: -1}
	answers.Check(config, pin)
	return config
}

func status(code int, reason, details string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":%q,"details":%s,"code":%d}`, reason, details, code)
}

const (
	namespace  = `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"ns-1","uid":"u-1","resourceVersion":"7"}}`
	notFound   = `{"name":"ns-1","kind":"namespaces"}`
	kubeSystem = `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"%s"}}`
)

// The results of a read and a deletion of the namespace ns-1, by the answer.
func TestOnlyAnAPIServersWordIsBelieved(t *testing.T) {
	const done, gone, refused, fault = "done", "gone", "refused", "fault"
	for name, row := range map[string]struct {
		code            int
		body            string
		read, del, list string
	}{
		"the object":                  {200, namespace, done, done, fault},
		"not found, by name":          {404, status(404, "NotFound", notFound), gone, gone, gone},
		"a balancer's 404":            {404, "default backend - 404", fault, fault, fault},
		"an empty 404":                {404, "", fault, fault, fault},
		"404 in JSON":                 {404, `{"error":"no route"}`, fault, fault, fault},
		"a Status without a name":     {404, status(404, "NotFound", "{}"), fault, fault, fault},
		"a Status about another":      {404, status(404, "NotFound", `{"name":"ns-2","kind":"namespaces"}`), fault, fault, gone},
		"a Status about another kind": {404, status(404, "NotFound", `{"name":"ns-1","kind":"pods"}`), fault, fault, gone},
		"a Status with another code":  {404, status(403, "NotFound", notFound), fault, fault, fault},
		"another reason":              {404, status(404, "Gone", notFound), fault, fault, fault},
		"an empty object":             {200, `{}`, fault, fault, fault},
		"no content":                  {200, "", fault, fault, fault},
		"a page":                      {200, "<html>log in</html>", fault, fault, fault},
		"a page for a redirect":       {302, "<html>log in</html>", fault, fault, fault},
		"cut off":                     {200, namespace[:40], fault, fault, fault},
		"cut off after its name":      {200, namespace[:len(namespace)-1], fault, done, fault},
		"another object":              {200, strings.ReplaceAll(namespace, "ns-1", "ns-2"), fault, fault, fault},
		"another kind":                {200, strings.ReplaceAll(namespace, "Namespace", "Secret"), fault, fault, fault},
		"another API":                 {200, strings.ReplaceAll(namespace, `"v1"`, `"example.com/v1"`), fault, fault, fault},
		"success without an object":   {200, `{"kind":"Status","apiVersion":"v1","status":"Success"}`, fault, done, fault},
		"success with another object": {200, `{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"ns-2"}}`, fault, fault, fault},
		"failure as a success":        {200, status(404, "NotFound", notFound), fault, fault, fault},
		"an empty list":               {200, `{"kind":"NamespaceList","apiVersion":"v1","items":[]}`, fault, fault, fault},
		"a list":                      {200, `{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`, fault, fault, done},
		"a list of another kind":      {200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`, fault, fault, fault},
		"forbidden":                   {403, status(403, "Forbidden", notFound), refused, refused, refused},
		"a firewall's 403":            {403, "blocked", fault, fault, fault},
		"a proxy's 400":               {400, "Client sent an HTTP request to an HTTPS server.", fault, fault, fault},
		"a proxy's 409":               {409, "", fault, fault, fault},
		"unauthorized":                {401, status(401, "Unauthorized", "{}"), refused, refused, refused},
		"a proxy's 401":               {401, "log in", fault, fault, fault},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.code, s.body = row.code, row.body
			s.others["/apis"] = `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`
			typed := kubernetes.NewForConfigOrDie(s.config(nil)).CoreV1().Namespaces()
			untyped := dynamic.NewForConfigOrDie(s.config(nil)).Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
			protobuf := s.config(nil)
			protobuf.ContentType = "application/vnd.kubernetes.protobuf"
			binary := kubernetes.NewForConfigOrDie(protobuf).CoreV1().Namespaces()
			for _, try := range []struct {
				what, want string
				do         func(context.Context) error
			}{
				{"read", row.read, func(ctx context.Context) error { _, err := typed.Get(ctx, "ns-1", metav1.GetOptions{}); return err }},
				{"read, asking for protobuf", row.read, func(ctx context.Context) error { _, err := binary.Get(ctx, "ns-1", metav1.GetOptions{}); return err }},
				{"read untyped", row.read, func(ctx context.Context) error { _, err := untyped.Get(ctx, "ns-1", metav1.GetOptions{}); return err }},
				{"delete", row.del, func(ctx context.Context) error { return typed.Delete(ctx, "ns-1", metav1.DeleteOptions{}) }},
				{"list", row.list, func(ctx context.Context) error { _, err := typed.List(ctx, metav1.ListOptions{}); return err }},
			} {
				err := try.do(t.Context())
				got := fault
				switch {
				case err == nil:
					got = done
				case apierrors.IsNotFound(err):
					got = gone
				case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
					got = refused
				}
				if got != try.want {
					t.Errorf("%s: %s (%v), want %s", try.what, got, err, try.want)
				}
			}
		})
	}
}

// The same in Kubernetes' protocol buffers, which clients of Kubernetes' own kinds use.
func TestAnswersInProtocolBuffers(t *testing.T) {
	gone := &metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: 404, Message: "m",
		Details: &metav1.StatusDetails{Name: "ns-1", Kind: "namespaces"},
	}
	another := gone.DeepCopy()
	another.Details.Name = "ns-2"
	meta := metav1.ObjectMeta{Name: "ns-1", UID: "u-1"}
	for name, row := range map[string]struct {
		code   int
		object runtime.Object
		cut    int
		list   bool
		want   func(error) bool
	}{
		"the object":            {200, &corev1.Namespace{ObjectMeta: meta}, 0, false, isDone},
		"cut off":               {200, &corev1.Namespace{ObjectMeta: meta}, 8, false, isFault},
		"another kind":          {200, &corev1.Secret{ObjectMeta: meta}, 0, false, isFault},
		"another object":        {200, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns-2"}}, 0, false, isFault},
		"a list":                {200, &corev1.NamespaceList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, 0, true, isDone},
		"a list of nothing":     {200, &corev1.NamespaceList{}, 0, true, isFault},
		"not found":             {404, gone, 0, false, apierrors.IsNotFound},
		"another is not found":  {404, another, 0, false, isFault},
		"failure as a success":  {200, gone, 0, false, isFault},
		"success for an object": {200, &metav1.Status{Status: metav1.StatusSuccess}, 0, false, isFault},
	} {
		t.Run(name, func(t *testing.T) {
			kinds, _, err := scheme.Scheme.ObjectKinds(row.object)
			if err != nil {
				t.Fatal(err)
			}
			version := kinds[0]
			if version.Kind == "Status" {
				version.Group, version.Version = "", "v1"
			}
			row.object.GetObjectKind().SetGroupVersionKind(version)
			body, err := runtime.Encode(kubeprotobuf.NewSerializer(scheme.Scheme, scheme.Scheme), row.object)
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
				w.WriteHeader(row.code)
				_, _ = w.Write(body[:len(body)-row.cut])
			}))
			defer s.Close()
			config := &rest.Config{Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}}
			answers.Check(config, nil)
			namespaces := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces()
			if row.list {
				_, err = namespaces.List(t.Context(), metav1.ListOptions{})
			} else {
				_, err = namespaces.Get(t.Context(), "ns-1", metav1.GetOptions{})
			}
			if !row.want(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func isDone(err error) bool  { return err == nil }
func isFault(err error) bool { return answers.IsForeign(err) }

// "Not found" is accepted only from the cluster with the pinned identity.
func TestAnotherClustersNotFoundIsNotBelieved(t *testing.T) {
	s := newServer(t)
	s.code, s.body = 404, status(404, "NotFound", notFound)
	pin := answers.KubeSystem()
	pin.For = 0
	pin.Set("u-1")
	namespaces := kubernetes.NewForConfigOrDie(s.config(pin)).CoreV1().Namespaces()
	for _, now := range []struct {
		uid  string
		gone bool
	}{{"u-1", true}, {"u-2", false}, {"", false}, {"u-1", true}} {
		s.others[pin.Path] = fmt.Sprintf(kubeSystem, now.uid)
		_, err := namespaces.Get(t.Context(), "ns-1", metav1.GetOptions{})
		if apierrors.IsNotFound(err) != now.gone || answers.IsForeign(err) == now.gone {
			t.Errorf("the cluster is %q, which was u-1: got %v, want gone %v", now.uid, err, now.gone)
		}
	}
}

// API servers answer with a plain 404 for an API that they do not serve. So does a proxy in
// front of one.
func TestAnAPIIsMissingWhereTheServersListOfAPIsHasNone(t *testing.T) {
	const (
		none      = `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`
		served    = `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"}]}]}`
		widgets   = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[{"name":"widgets","kind":"Widget"}]}`
		otherKind = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[{"name":"gadgets","kind":"Gadget"}]}`
	)
	for name, row := range map[string]struct {
		version, groups, resources string
		missing                    bool
	}{
		"it serves no such group":       {"v1", none, "", true},
		"it serves another version":     {"v2", served, "", true},
		"it serves others of the group": {"v1", served, otherKind, true},
		"it serves it":                  {"v1", served, widgets, false},
		"it does not list its APIs":     {"v1", "404 page not found", "", false},
		"its list is none":              {"v1", "{}", "", false},
		"its list of resources is none": {"v1", served, "{}", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.code, s.body = 404, "404 page not found"
			s.others["/apis"], s.others["/apis/example.com/v1"] = row.groups, row.resources
			widgets := dynamic.NewForConfigOrDie(s.config(nil)).Resource(schema.GroupVersionResource{Group: "example.com", Version: row.version, Resource: "widgets"})
			_, err := widgets.Namespace("ns").Get(t.Context(), "w", metav1.GetOptions{})
			if apierrors.IsNotFound(err) != row.missing || answers.IsForeign(err) == row.missing {
				t.Errorf("got %v, want it missing: %v", err, row.missing)
			}
		})
	}
}

// A page with 200 is not a healthy API server.
func TestHealthIsWhatAnAPIServerCallsIt(t *testing.T) {
	s := newServer(t)
	readyz := func() error {
		return kubernetes.NewForConfigOrDie(s.config(nil)).Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	}
	for body, healthy := range map[string]bool{"ok": true, "<html>maintenance</html>": false, "{}": false, "": false} {
		s.code, s.body = 200, body
		if err := readyz(); (err == nil) != healthy {
			t.Errorf("/readyz says %q: got %v", body, err)
		}
	}
}

// A server may be one of several behind a proxy, each below a path of its own.
func TestAPathBeforeTheAPI(t *testing.T) {
	s := newServer(t)
	s.code, s.body = 404, "default backend - 404"
	config := &rest.Config{Host: s.URL + "/clusters/c-1/", QPS: -1}
	answers.Check(config, nil)
	c := dynamic.NewForConfigOrDie(config).Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	if _, err := c.Get(t.Context(), "ns-1", metav1.GetOptions{}); !answers.IsForeign(err) {
		t.Errorf("got %v, want it not believed", err)
	}
	s.code, s.body = 200, namespace
	if _, err := c.Get(t.Context(), "ns-1", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	var applied unstructured.Unstructured
	if err := applied.UnmarshalJSON([]byte(namespace)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), "ns-1", &applied, metav1.ApplyOptions{FieldManager: "test"}); err != nil {
		t.Error(err)
	}
}
