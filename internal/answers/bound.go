package answers

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

const (
	// mostOfAnAnswer is the most bytes that are read of an answer, after decompression. Lists that may be longer are read in
	// pages.
	mostOfAnAnswer = 64 << 20
	// mostOfAnEvent is the most bytes that are read of an event of a watch. It is client-go's limit, which its decoder of
	// JSON applies only to events that it has read completely.
	mostOfAnEvent = 16 << 20
	// mostObjects is the most JSON objects in an event, or in an answer of a stranger. A list of empty objects takes 400 times
	// its length when it is decoded. A page of pods has 100,000 objects.
	mostObjects = 1 << 18
)

// TooLargeError means that an answer, or an event of a watch, is larger than Sluice reads.
type TooLargeError struct {
	// Request is the method and URL.
	Request string
	// Most is the limit.
	Most string
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the answer to %s has more than %s in one piece, and is not read", e.Request, e.Most)
}

// IsTooLarge reports whether err contains a *TooLargeError.
func IsTooLarge(err error) bool { return errors.As(err, new(*TooLargeError)) }

// Bound makes every client built on config read answers up to 64 MiB, and events of watches up to 16 MiB, after
// decompression; reading on fails with *TooLargeError. So a member cluster cannot fill the memory with one answer. Streams
// of containers have no limit. A stranger's answers must be in JSON, or texts, which no client decodes, and have at most
// 262,144 objects. Call it before Check, which reads answers.
func Bound(config *rest.Config, stranger bool) {
	base := Base(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bounded{base, stranger, next} })
}

type bounded struct {
	base     string
	stranger bool
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.stranger {
		r = r.Clone(r.Context())
		r.Header.Set("Accept", withoutProtobuf(r.Header.Get("Accept")))
	}
	response, err := b.next.RoundTrip(r)
	if err != nil || response.StatusCode == http.StatusSwitchingProtocols {
		return response, err
	}
	info, err := Asked(r, b.base)
	encoding, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err == nil && b.stranger && !slices.Contains([]string{"", runtime.ContentTypeJSON, "text/plain", "text/html"}, encoding) {
		err = &Error{Request: r.Method + " " + r.URL.Path, Status: response.Status, Why: fmt.Sprintf("want JSON, got %q", encoding)}
	}
	if err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	body := &boundedBody{ReadCloser: response.Body, request: r.Method + " " + r.URL.Redacted(), most: mostOfAnAnswer}
	if b.stranger {
		body.text = &jsonText{}
	}
	if ask := (asked{RequestInfo: info}); response.StatusCode < 300 && ask.IsResourceRequest {
		// client-go reads the length of each event in protocol buffers before the event, and skips those that are too long.
		isFramed := ask.Verb == "watch" && encoding == runtime.ContentTypeProtobuf
		if ask.isStream() || isFramed {
			return response, nil
		}
		if ask.Verb == "watch" {
			body.most, body.text, body.isWatch = mostOfAnEvent, &jsonText{}, true
		}
	}
	response.Body = body
	return response, nil
}

// WrappedRoundTripper lets client-go reach the transport below, to close its connections.
func (b *bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

// withoutProtobuf returns the encodings of a header Accept without protocol buffers.
func withoutProtobuf(accept string) string {
	encodings := slices.DeleteFunc(strings.Split(accept, ","), func(e string) bool { return e == "" || strings.Contains(e, "protobuf") })
	if len(encodings) == 0 {
		return runtime.ContentTypeJSON
	}
	return strings.Join(encodings, ",")
}

// boundedBody is a body that fails when it is too large.
type boundedBody struct {
	io.ReadCloser
	request string
	most    int64
	// read bytes of the answer, or of the present event.
	read int64
	// text follows what is read; nil if only its length counts.
	text    *jsonText
	isWatch bool
	failed  error
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (n int, err error) {
	if b.failed != nil {
		return 0, b.failed
	}
	n, err = b.ReadCloser.Read(p)
	b.read += int64(n)
	if b.text != nil {
		if rest, ended := b.text.follow(p[:n]); ended && b.isWatch {
			b.read = int64(rest)
		}
	}
	switch {
	case b.read > b.most:
		b.failed = &TooLargeError{Request: b.request, Most: fmt.Sprintf("%d MiB", b.most>>20)}
	case b.text != nil && b.text.objects > mostObjects:
		b.failed = &TooLargeError{Request: b.request, Most: fmt.Sprintf("%d objects", mostObjects)}
	}
	if b.failed != nil {
		return 0, b.failed
	}
	return n, err
}

// jsonText follows a sequence of JSON values, as far as it takes to count their objects, and to know where each value ends.
// Text that is no JSON has no end.
type jsonText struct {
	// objects in the present value.
	objects            int
	depth              int
	isString, isEscape bool
}

// follow reads on. If a value ends, it returns how many bytes come after the last one.
func (t *jsonText) follow(text []byte) (rest int, ended bool) {
	for i, c := range text {
		switch {
		case t.isEscape:
			t.isEscape = false
		case t.isString:
			t.isEscape, t.isString = c == '\\', c != '"'
		case c == '"':
			t.isString = true
		case c == '{' || c == '[':
			if t.depth == 0 {
				t.objects = 0
			}
			if t.depth++; c == '{' {
				t.objects++
			}
		case c == '}' || c == ']':
			if t.depth--; t.depth == 0 {
				rest, ended = len(text)-i-1, true
			}
		}
	}
	return rest, ended
}
