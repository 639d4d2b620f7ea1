//go:build faults

package crashpoint

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/internal/answers"
)

var (
	file  = os.Getenv("SLUICE_CRASH_FILE")
	past  = os.Getenv("SLUICE_CRASH_PAST")
	dying sync.Mutex // held for good by the goroutine that dies
)

// Guard kills the process right after the writes of every client that is built on the
// configuration later. The server's name is part of theirs.
func Guard(config *rest.Config, server string) {
	if file == "" {
		return
	}
	base, passed := answers.Base(config), regexp.MustCompile(cmp.Or(past, "^$"))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{server, base, passed, next} })
}

type transport struct {
	server, base string
	past         *regexp.Regexp // writes that nothing dies at
	next         http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	write, err := t.name(r)
	switch {
	case err != nil:
		return nil, err
	case write == "", t.past.MatchString(write):
		return t.next.RoundTrip(r)
	}
	response, err := t.next.RoundTrip(r)
	if err == nil && response.StatusCode < http.StatusMultipleChoices {
		reach(write)
	}
	return response, err
}

// WrappedRoundTripper lets client-go reach the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// name names a write by what it does; it is empty for a request that changes nothing.
func (t *transport) name(r *http.Request) (string, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.URL.Query().Has("dryRun") {
		return "", nil
	}
	asked, err := answers.Asked(r, t.base)
	if err != nil {
		return "", fmt.Errorf("name the write %s %s: %w", r.Method, r.URL.Path, err)
	}
	if !asked.IsResourceRequest || isQuestion(asked) {
		return "", nil
	}
	var body []byte
	if r.Body != nil {
		body, err = io.ReadAll(r.Body)
		_ = r.Body.Close()
		r.Body = io.NopCloser(bytes.NewReader(body))
		if err != nil {
			return "", err
		}
	}
	resource := asked.Resource
	if asked.Subresource != "" {
		resource += "/" + asked.Subresource
	}
	name := strings.Join([]string{t.server, asked.Verb, resource}, " ")
	if fields := fieldsOf(body, asked.Subresource == "status"); len(fields) > 0 {
		name += ": " + strings.Join(fields, " ")
	}
	return name, nil
}

// isQuestion reports whether a request creates nothing: reviews are questions with a body. An
// event tells what has been done.
func isQuestion(asked *request.RequestInfo) bool {
	return strings.HasSuffix(asked.Resource, "reviews") || asked.Resource == "events"
}

// reach kills the process if the crash file exists and does not have the write yet.
func reach(write string) {
	dying.Lock()
	defer dying.Unlock()
	text, err := os.ReadFile(file)
	if err != nil || slices.Contains(strings.Split(string(text), "\n"), write) {
		return
	}
	// A kill keeps what was written: the file needs no sync.
	record, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return // the test has just ended this
	}
	if _, err := fmt.Fprintln(record, write); err != nil {
		panic(err)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // nothing runs past the write
}
