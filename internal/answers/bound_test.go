package answers_test

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/internal/answers"
)

const aPod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p\"}{","namespace":"ns-1","annotations":{"long":"`

// endless answers with the beginning of an answer, and then repeats a text until the client leaves.
func endless(t *testing.T, stranger bool, code int, encoding, beginning, text string) *rest.Config {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", encoding)
		var out io.Writer = w
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") { // a bomb
			w.Header().Set("Content-Encoding", "gzip")
			compressed := gzip.NewWriter(w)
			defer compressed.Close()
			out = compressed
		}
		w.WriteHeader(code)
		_, err := io.WriteString(out, beginning)
		for block := strings.Repeat(text, 1<<16/len(text)); err == nil; {
			_, err = io.WriteString(out, block)
		}
	}))
	t.Cleanup(s.Close)
	config := &rest.Config{Host: s.URL, QPS: -1}
	answers.Bound(config, stranger)
	answers.Check(config, nil)
	return config
}

// TestEndlessAnswersEnd: no answer of a member cluster is read without an end, whatever it is an answer to.
func TestEndlessAnswersEnd(t *testing.T) {
	const json, protobuf = "application/json", "application/vnd.kubernetes.protobuf"
	get := func(ctx context.Context, config *rest.Config) error {
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("ns-1").Get(ctx, "p\"}{", metav1.GetOptions{})
		return err
	}
	list := func(ctx context.Context, config *rest.Config) error {
		_, err := dynamic.NewForConfigOrDie(config).Resource(corev1.SchemeGroupVersion.WithResource("pods")).List(ctx, metav1.ListOptions{})
		return err
	}
	at := func(path string) func(ctx context.Context, config *rest.Config) error {
		return func(ctx context.Context, config *rest.Config) error {
			return kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient().Get().AbsPath(path).MaxRetries(0).Do(ctx).Error()
		}
	}
	for name, row := range map[string]struct {
		code                      int
		encoding, beginning, text string
		ask                       func(context.Context, *rest.Config) error
	}{
		"an object":                  {200, json, aPod, "x", get},
		"a beginning without an end": {200, json, `{"kind":"`, "x", get},
		"a list":                     {200, json, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{}`, ",{}", list},
		"protocol buffers":           {200, protobuf, "k8s\x00", "x", get},
		"an error that is retried":   {500, json, `{"kind":"Status","message":"`, "x", at("/api/v1/nodes")},
		"a path of no resource":      {200, json, `{"`, "x", at("/version")},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := row.ask(ctx, endless(t, false, row.code, row.encoding, row.beginning, row.text))
			if !answers.IsTooLarge(err) || !strings.Contains(err.Error(), "64 MiB") || !strings.Contains(err.Error(), "http://127.0.0.1") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestEndlessEventsEnd: a watch may last, and an event of it may not. client-go skips long ones in protocol buffers.
func TestEndlessEventsEnd(t *testing.T) {
	const short = `{"type":"ADDED","object":` + aPod + `"}}}}` + "\n"
	for name, row := range map[string]struct{ beginning, text string }{
		"in one string":  {short + `{"type":"ADDED","object":` + aPod, "x"},
		"in many arrays": {short + `{"type":"ADDED","object":[[]`, ",\n[]"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			pods := dynamic.NewForConfigOrDie(endless(t, false, 200, "application/json", row.beginning, row.text)).Resource(corev1.SchemeGroupVersion.WithResource("pods"))
			events, err := pods.Watch(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			if first := <-events.ResultChan(); first.Type != "ADDED" {
				t.Fatalf("the first event is %+v", first)
			}
			last := <-events.ResultChan()
			if s, is := last.Object.(*metav1.Status); !is || !strings.Contains(s.Message, "more than 16 MiB") {
				t.Errorf("the long event is %+v", last)
			}
		})
	}

	// Many events that are short are longer together.
	pods := dynamic.NewForConfigOrDie(endless(t, false, 200, "application/json", "", `{"type":"ADDED","object":`+aPod+strings.Repeat("x", 4096)+`"}}}}`+"\n")).Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	events, err := pods.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	for i := range 4200 { // 17 MiB
		if event := <-events.ResultChan(); event.Type != "ADDED" {
			t.Fatalf("event %d is %+v", i, event)
		}
	}
}

// TestAStrangersAnswersHaveAFormThatIsCounted: few bytes may be many objects, in protocol buffers at any depth.
func TestAStrangersAnswersHaveAFormThatIsCounted(t *testing.T) {
	const many = "more than 262144 objects"
	list := func(config *rest.Config) error {
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		return err
	}
	for name, row := range map[string]struct {
		encoding, beginning, text, want string
	}{
		"many items":           {"application/json", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{}`, ",{}", many},
		"many parts of a part": {"application/json", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"spec":{"containers":[{}`, ",\n{}", many},
		"protocol buffers":     {"application/vnd.kubernetes.protobuf", "k8s\x00", "x", `want JSON, got "application/vnd.kubernetes.protobuf"`},
		"YAML":                 {"application/yaml; charset=utf-8", "items:\n", "- {}\n", `want JSON, got "application/yaml"`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := list(endless(t, true, 200, row.encoding, row.beginning, row.text)); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
	pods, err := dynamic.NewForConfigOrDie(endless(t, true, 200, "application/json", `{"type":"ADDED","object":[{}`, ",{}")).Resource(corev1.SchemeGroupVersion.WithResource("pods")).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	event := <-pods.ResultChan()
	if s, is := event.Object.(*metav1.Status); !is || !strings.Contains(s.Message, many) {
		t.Errorf("an event with many objects is %+v", event)
	}

	// Clients do not ask for what is refused.
	var accepts string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepts = r.Header.Get("Accept")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[]}`)
	}))
	defer s.Close()
	config := &rest.Config{Host: s.URL, QPS: -1}
	answers.Bound(config, true)
	answers.Check(config, nil)
	_, err = metadata.NewForConfigOrDie(config).Resource(corev1.SchemeGroupVersion.WithResource("pods")).List(t.Context(), metav1.ListOptions{})
	if err != nil || strings.Contains(accepts, "protobuf") || !strings.HasPrefix(accepts, "application/json;as=PartialObjectMetadataList") {
		t.Errorf("%v; the client accepts %s", err, accepts)
	}
}

// TestBusyStrangers: a proxy in front of a stranger's API server may say that it is busy in HTML, as that of any other, and
// nothing else.
func TestBusyStrangers(t *testing.T) {
	for code, passes := range map[int]func(error) bool{
		http.StatusTooManyRequests:    apierrors.IsTooManyRequests,
		http.StatusServiceUnavailable: apierrors.IsServiceUnavailable,
		http.StatusNotFound:           answers.IsForeign,
		http.StatusOK:                 answers.IsForeign,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "<html><body>busy</body></html>")
		}))
		defer s.Close()
		config := &rest.Config{Host: s.URL, QPS: -1}
		answers.Bound(config, true)
		answers.Check(config, nil)
		if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !passes(err) {
			t.Errorf("%d: %v", code, err)
		}
	}
}
