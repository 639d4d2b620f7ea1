package answers

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

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
)

// TooLargeError means that an answer, or an event of a watch, is longer than Sluice reads.
type TooLargeError struct {
	// Request is the method and URL.
	Request string
	// Most is the number of bytes that are read.
	Most int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the answer to %s has more than %d MiB in one piece, and is not read", e.Request, e.Most>>20)
}

// IsTooLarge reports whether err contains a *TooLargeError.
func IsTooLarge(err error) bool { return errors.As(err, new(*TooLargeError)) }

// Bound makes every client built on config read answers up to 64 MiB, and events of watches up to 16 MiB, after
// decompression; reading on fails with *TooLargeError. So a member cluster cannot fill the memory with one answer. Streams
// of containers have no limit. Call it before Check, which reads answers.
func Bound(config *rest.Config) {
	base := Base(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bounded{base, next} })
}

type bounded struct {
	base string
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err != nil || response.StatusCode == http.StatusSwitchingProtocols {
		return response, err
	}
	info, err := Asked(r, b.base)
	if err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	ask := asked{RequestInfo: info}
	body := &boundedBody{ReadCloser: response.Body, most: mostOfAnAnswer, request: r.Method + " " + r.URL.Redacted()}
	if response.StatusCode < 300 && ask.IsResourceRequest {
		if ask.isStream() || ask.Verb == "watch" && isFramed(response) {
			return response, nil
		}
		if ask.Verb == "watch" {
			body.most, body.event = mostOfAnEvent, &jsonEvent{}
		}
	}
	response.Body = body
	return response, nil
}

// WrappedRoundTripper lets client-go reach the transport below, to close its connections.
func (b *bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

// isFramed reports whether a watch is in protocol buffers. client-go reads the length of each event before the event, and
// skips those that are too long. It refuses a watch in an encoding that it does not know.
func isFramed(response *http.Response) bool {
	encoding, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return err == nil && encoding == runtime.ContentTypeProtobuf
}

// boundedBody is a body that fails after a number of bytes.
type boundedBody struct {
	io.ReadCloser
	request string
	most    int64
	// read bytes of the answer, or of the present event.
	read int64
	// event is the state of a watch's present event; nil if the answer is no watch.
	event *jsonEvent
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (n int, err error) {
	if b.read <= b.most {
		n, err = b.ReadCloser.Read(p)
		b.read += int64(n)
	}
	if b.event != nil && b.read <= b.most {
		if last, ended := b.event.follow(p[:n]); ended {
			b.read = int64(n - last - 1)
		}
	}
	if b.read > b.most {
		return 0, &TooLargeError{Request: b.request, Most: b.most}
	}
	return n, err
}

// jsonEvent follows a sequence of JSON objects, as far as it takes to know where each ends. What is no JSON has no end.
type jsonEvent struct {
	depth              int
	isString, isEscape bool
}

// follow reads on, and returns the position of the last end of an object.
func (e *jsonEvent) follow(text []byte) (last int, ended bool) {
	for i, c := range text {
		switch {
		case e.isEscape:
			e.isEscape = false
		case e.isString:
			e.isEscape, e.isString = c == '\\', c != '"'
		case c == '"':
			e.isString = true
		case c == '{' || c == '[':
			e.depth++
		case c == '}' || c == ']':
			if e.depth--; e.depth == 0 {
				last, ended = i, true
			}
		}
	}
	return last, ended
}
