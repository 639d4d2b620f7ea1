package suitetest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
)

// call is one request on its way to the broker and back. A defect changes it on
// either way.
type call struct {
	*http.Request
	route  string // as in routeOf
	body   []byte // of the request
	status int
	header http.Header
	answer []byte
	broker http.Handler
}

// Routes of the API, as defects name them.
const (
	anyRoute    = ""
	catalog     = "catalog"
	provision   = "provision"
	fetch       = "fetch"
	update      = "update"
	deprovision = "deprovision"
	poll        = "poll"
	bind        = "bind"
	fetchBind   = "fetch binding"
	unbind      = "unbind"
	pollBind    = "poll binding"
)

func routeOf(r *http.Request) string {
	segments := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	routes := map[int]map[string]string{
		3: {"PUT": provision, "GET": fetch, "PATCH": update, "DELETE": deprovision},
		4: {"GET": poll},
		5: {"PUT": bind, "GET": fetchBind, "DELETE": unbind},
		6: {"GET": pollBind},
	}
	if len(segments) == 2 {
		return catalog
	}
	return routes[len(segments)][r.Method]
}

// instanceID and bindingID as they are spelled in the path.
func (c *call) instanceID() string { return c.segment(3) }
func (c *call) bindingID() string  { return c.segment(5) }

func (c *call) segment(n int) string {
	if segments := strings.Split(c.URL.EscapedPath(), "/"); n < len(segments) {
		return segments[n]
	}
	return ""
}

// sent is the request's body, nil where it is no JSON object.
func (c *call) sent() object {
	var body object
	_ = json.Unmarshal(c.body, &body)
	return body
}

// editSent changes the request's body where it is a JSON object.
func (c *call) editSent(edit func(object)) {
	if body := c.sent(); body != nil {
		edit(body)
		c.body, _ = json.Marshal(body)
	}
}

// editQuery changes the request's query.
func (c *call) editQuery(edit func(url.Values)) {
	query := c.URL.Query()
	edit(query)
	c.URL.RawQuery = query.Encode()
}

// answered is the response's body, nil where it is no JSON object.
func (c *call) answered() object {
	var body object
	_ = json.Unmarshal(c.answer, &body)
	return body
}

// editAnswered changes the response's body where it is a JSON object.
func (c *call) editAnswered(edit func(object)) {
	if body := c.answered(); body != nil {
		edit(body)
		c.reply(c.status, body)
	}
}

// reply replaces the response.
func (c *call) reply(status int, body object) {
	c.status = status
	c.answer, _ = json.Marshal(body)
	c.header.Set("Content-Type", "application/json")
}

// send makes the broker answer c as it is now.
func (c *call) send() {
	request := c.Clone(c.Context())
	request.Body = io.NopCloser(bytes.NewReader(c.body))
	recorder := httptest.NewRecorder()
	c.broker.ServeHTTP(recorder, request)
	c.status, c.header, c.answer = recorder.Code, recorder.Header(), recorder.Body.Bytes()
}

// also makes the broker carry out another request of the same caller, unseen.
func (c *call) also(method, path string, query url.Values, body object) {
	document, _ := json.Marshal(body)
	request := httptest.NewRequest(method, path+"?"+query.Encode(), bytes.NewReader(document))
	request.Header = c.Header.Clone()
	c.broker.ServeHTTP(httptest.NewRecorder(), request)
}

// fault changes requests and responses as a defective broker would.
type fault struct{ before, after func(*call) }

// behind returns the broker with the fault in front of it.
func (f fault) behind(broker http.Handler) http.Handler {
	var mu sync.Mutex // faults keep state
	guarded := func(change func(*call), c *call) {
		if change != nil {
			mu.Lock()
			defer mu.Unlock()
			change(c)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Request: r, route: routeOf(r), broker: broker}
		c.body, _ = io.ReadAll(r.Body)
		guarded(f.before, c)
		c.send()
		guarded(f.after, c)
		for name, values := range c.header {
			w.Header()[name] = values
		}
		w.WriteHeader(c.status)
		_, _ = w.Write(c.answer)
	})
}

// before is a fault in how requests of the route are read.
func before(route string, change func(*call)) func() fault {
	return func() fault {
		return fault{before: func(c *call) {
			if route == anyRoute || route == c.route {
				change(c)
			}
		}}
	}
}

// after is a fault in how requests of the route are answered.
func after(route string, change func(*call)) func() fault {
	return func() fault {
		return fault{after: func(c *call) {
			if route == anyRoute || route == c.route {
				change(c)
			}
		}}
	}
}

// instead answers with another status and body where the status would be right.
func instead(route string, right, wrong int, body object) func() fault {
	return after(route, func(c *call) {
		if c.status == right {
			c.reply(wrong, body)
		}
	})
}

// misreads changes what the platform sent to the route.
func misreads(route string, edit func(sent object)) func() fault {
	return before(route, func(c *call) { c.editSent(edit) })
}

// misreports changes what the broker says on success.
func misreports(route string, edit func(answered object)) func() fault {
	return after(route, func(c *call) {
		if c.status < 300 {
			c.editAnswered(edit)
		}
	})
}

// eachTime gives the field another value in each answer with the status.
func eachTime(route string, status int, field string) func() fault {
	return func() fault {
		var n int
		return fault{after: func(c *call) {
			if c.route == route && c.status == status {
				n++
				c.editAnswered(func(body object) { body[field] = "number-" + number(n) })
			}
		}}
	}
}

// drop removes fields of a body.
func drop(fields ...string) func(object) {
	return func(body object) {
		for _, field := range fields {
			delete(body, field)
		}
	}
}

// set gives a field of a body a value.
func set(field string, value any) func(object) { return func(body object) { body[field] = value } }
