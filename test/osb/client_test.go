package osb

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// platform is one caller of the broker: who it says it is and what it speaks.
type platform struct {
	username, password string
	token              string // instead of both
	version            string // X-Broker-API-Version; empty sends no such header
}

// at returns p as a client of another version of the API.
func (p platform) at(version string) platform {
	p.version = version
	return p
}

// request is one call to the broker.
type request struct {
	method string
	path   []string // segments after /v2, escaped one by one
	query  url.Values
	body   any // []byte is sent as it is, anything else as JSON, nil as nothing
	header http.Header
}

// do sends r as p. Everything but an HTTP response fails the spec. A broker may slow callers
// with wrong credentials: what it answers 429 is sent again when it says so (RFC 6585, section 4).
func (p platform) do(ctx context.Context, r request) response {
	GinkgoHelper()
	for {
		response, err := p.try(ctx, r)
		Expect(err).NotTo(HaveOccurred())
		seconds, err := strconv.Atoi(response.header.Get("Retry-After"))
		if response.status != http.StatusTooManyRequests || err != nil {
			return response
		}
		select {
		case <-ctx.Done():
			return response
		case <-time.After(time.Duration(seconds) * time.Second):
		}
	}
}

// try is do for specs that expect no response, for instance because they hang up.
func (p platform) try(ctx context.Context, r request) (response, error) {
	address := target.url + "/v2"
	for _, segment := range r.path {
		address += "/" + url.PathEscape(segment)
	}
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	var body io.Reader
	switch b := r.body.(type) {
	case nil:
	case []byte:
		body = bytes.NewReader(b)
	default:
		document, err := json.Marshal(b)
		if err != nil {
			return response{}, fmt.Errorf("encode the body of %s %s: %w", r.method, address, err)
		}
		body = bytes.NewReader(document)
	}
	call, err := http.NewRequestWithContext(ctx, r.method, address, body)
	if err != nil {
		return response{}, fmt.Errorf("make the request %s %s: %w", r.method, address, err)
	}
	p.sign(call.Header)
	if body != nil {
		call.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(call.Header, r.header)
	answer, err := target.client.Do(call)
	if err != nil {
		return response{}, fmt.Errorf("call the broker: %w", err)
	}
	defer answer.Body.Close()
	document, err := io.ReadAll(answer.Body)
	if err != nil {
		return response{}, fmt.Errorf("read the response of %s %s: %w", r.method, address, err)
	}
	return response{request: r.method + " " + address, status: answer.StatusCode, header: answer.Header, body: document}, nil
}

func (p platform) sign(header http.Header) {
	switch {
	case p.token != "":
		header.Set("Authorization", "Bearer "+p.token)
	case p.username != "":
		call := http.Request{Header: header}
		call.SetBasicAuth(p.username, p.password)
	}
	if p.version != "" {
		header.Set("X-Broker-API-Version", p.version)
	}
}

func (p platform) catalog(ctx context.Context) response {
	GinkgoHelper()
	return p.do(ctx, request{method: http.MethodGet, path: []string{"catalog"}})
}

// response of the broker.
type response struct {
	request string
	status  int
	header  http.Header
	body    []byte
}

// String says enough to find the fault and never shows credentials.
func (r response) String() string {
	text := fmt.Sprintf("%s answered %d", r.request, r.status)
	var body object
	if json.Unmarshal(r.body, &body) != nil {
		return text + fmt.Sprintf(" with %d bytes that are no JSON object", len(r.body))
	}
	for _, name := range []string{"error", "description", "state", "operation"} {
		if value, there := body[name]; there {
			text += fmt.Sprintf(", %s %q", name, value)
		}
	}
	return text + fmt.Sprintf(" (fields %s)", strings.Join(sortedKeys(body), ", "))
}

// mustBe checks the status, and that the body is a JSON object as OSB 2.17,
// "Content Type", demands of every response.
func (r response) mustBe(statuses ...int) {
	GinkgoHelper()
	Expect(r.status).To(BeElementOf(statuses), r.String)
	r.object()
}

// mustRefuse checks the status and the form of an error, OSB 2.17 "Service Broker
// Errors". code is the error code, or empty where the spec names none.
func (r response) mustRefuse(code string, statuses ...int) {
	GinkgoHelper()
	r.mustBe(statuses...)
	body := r.object()
	Expect(body).To(HaveKeyWithValue("description", And(BeAssignableToTypeOf(""), Not(BeEmpty()))), r.String)
	if value, there := body["error"]; there {
		Expect(value).To(And(BeAssignableToTypeOf(""), Not(BeEmpty())), r.String)
	}
	if code != "" {
		Expect(body).To(HaveKeyWithValue("error", code), r.String)
	}
}

// mustRefuseAsUser is mustRefuse where the spec asks for any client error.
func (r response) mustRefuseAsUser() {
	GinkgoHelper()
	Expect(r.status).To(And(BeNumerically(">=", 400), BeNumerically("<", 500)), r.String)
	r.mustRefuse("", r.status)
}

// object is the body.
func (r response) object() object {
	GinkgoHelper()
	mediaType, _, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	Expect(err).NotTo(HaveOccurred(), "Content-Type of %s", r)
	Expect(mediaType).To(Equal("application/json"), "Content-Type of %s", r)
	var body object
	Expect(json.Unmarshal(r.body, &body)).To(Succeed(), r.String)
	Expect(body).NotTo(BeNil(), r.String)
	return body
}

func (r response) decode(into any) {
	GinkgoHelper()
	Expect(json.Unmarshal(r.body, into)).To(Succeed(), r.String)
}

// operation is the token of a 202.
func (r response) operation() string {
	GinkgoHelper()
	value, there := r.object()["operation"]
	if !there {
		return ""
	}
	Expect(value).To(And(BeAssignableToTypeOf(""), Not(BeEmpty())), r.String)
	return value.(string)
}

// parallel calls f n times at once, with 0 to n-1, and returns what they answered.
func parallel(n int, f func(i int) response) []response {
	GinkgoHelper()
	answers := make([]response, n)
	start, done := make(chan struct{}), make(chan struct{})
	for i := range n {
		go func() {
			defer func() { done <- struct{}{} }()
			defer GinkgoRecover()
			<-start
			answers[i] = f(i)
		}()
	}
	close(start)
	for range n {
		<-done
	}
	return answers
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
