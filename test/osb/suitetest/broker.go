package suitetest

import (
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// How long operations of the fake take: long enough to be seen in progress.
const (
	provisionTakes   = 10 * time.Millisecond
	updateTakes      = 150 * time.Millisecond
	deprovisionTakes = 40 * time.Millisecond
	bindTakes        = 40 * time.Millisecond
)

// Broker is a fake that follows OSB 2.17. It knows the platforms of credentials and
// the catalog of catalog, keeps everything in memory and delivers nothing. A provision
// with the parameter "pending" stays in progress, an update with "fails" fails.
type Broker struct {
	// AsyncBind answers 202 to a bind with accepts_incomplete=true.
	AsyncBind bool

	mu        sync.Mutex
	instances map[instanceKey]*instance
	sequence  int             // of credentials
	deletions map[string]bool // tokens of deprovisions that were asked for
}

type instanceKey struct{ platform, id string }

// instance is a service instance; present says that it is or was ready.
type instance struct {
	service, plan, organization, space string
	parameters                         object
	present                            bool
	operation                          operation
	bindings                           map[string]*binding
}

type binding struct {
	request   object // what an identical bind must repeat
	answer    object
	operation operation
}

// operation is the last of an instance or a binding. carryOut is called once, when
// it is done.
type operation struct {
	kind, token string
	doneAt      time.Time // zero: never
	state       string
	fields      object // further ones of last_operation
	carryOut    func()
}

func (b *Broker) start(kind string, takes time.Duration, carryOut func()) operation {
	o := operation{kind: kind, token: kind + "-" + rand.Text(), state: "in progress", carryOut: carryOut}
	if kind == "deprovision" {
		if b.deletions == nil {
			b.deletions = map[string]bool{}
		}
		b.deletions[o.token] = true
	}
	if takes > 0 {
		o.doneAt = time.Now().Add(takes)
	}
	return o
}

// advance carries out what is due.
func (o *operation) advance() {
	if o.state == "in progress" && !o.doneAt.IsZero() && time.Now().After(o.doneAt) {
		o.state = "succeeded"
		o.carryOut()
	}
}

func (o *operation) inProgress() bool { return o.state == "in progress" }

func (o *operation) accepted(fields object) answer {
	body := object{"operation": o.token}
	for name, value := range fields {
		body[name] = value
	}
	return answer{status: http.StatusAccepted, body: body}
}

// ServeHTTP answers one request at a time.
func (b *Broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	a := b.answer(r)
	b.mu.Unlock()
	if id := r.Header.Get("X-Broker-API-Request-Identity"); id != "" {
		w.Header().Set("X-Broker-API-Request-Identity", id)
	}
	a.write(w)
}

func (b *Broker) answer(r *http.Request) answer {
	platform, known := authenticate(r)
	if !known {
		a := refusal(http.StatusUnauthorized, "", "The credentials are not those of a platform.")
		a.header = http.Header{"Www-Authenticate": {`Basic realm="broker"`}}
		return a
	}
	version, supported := minorVersion(r.Header.Get("X-Broker-API-Version"))
	if !supported {
		return refusal(http.StatusPreconditionFailed, "", "The broker speaks X-Broker-API-Version 2.13 to 2.17.")
	}
	q := request{Request: r, platform: platform, version: version}
	if a, ok := q.readIdentity(); !ok {
		return a
	}
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), "/v2/")
	if !ok {
		return notFound()
	}
	var segments []string
	for segment := range strings.SplitSeq(path, "/") {
		decoded, err := url.PathUnescape(segment)
		if err != nil || decoded == "" {
			return notFound()
		}
		segments = append(segments, decoded)
	}
	return b.route(q, segments)
}

func (b *Broker) route(q request, segments []string) answer {
	if len(segments) > 1 && segments[0] == "service_instances" {
		q.instanceID = segments[1]
		b.advance(q)
	}
	handlers := map[string]func(request) answer{}
	switch {
	case len(segments) == 1 && segments[0] == "catalog":
		handlers["GET"] = b.catalog
	case q.instanceID == "":
		return notFound()
	case len(segments) == 2:
		handlers["PUT"], handlers["GET"], handlers["PATCH"], handlers["DELETE"] = b.provision, b.fetch, b.update, b.deprovision
	case len(segments) == 3 && segments[2] == "last_operation":
		handlers["GET"] = b.lastOperation
	case len(segments) >= 4 && segments[2] == "service_bindings":
		q.bindingID = segments[3]
		switch {
		case len(segments) == 4:
			handlers["PUT"], handlers["GET"], handlers["DELETE"] = b.bind, b.fetchBinding, b.unbind
		case len(segments) == 5 && segments[4] == "last_operation":
			handlers["GET"] = b.lastBindingOperation
		}
	}
	if len(handlers) == 0 {
		return notFound()
	}
	if get, there := handlers["GET"]; there {
		handlers["HEAD"] = get
	}
	handle, there := handlers[q.Method]
	if !there {
		a := refusal(http.StatusMethodNotAllowed, "", "The route does not take "+q.Method+".")
		a.header = http.Header{"Allow": {strings.Join(slices.Sorted(maps.Keys(handlers)), ", ")}}
		return a
	}
	if q.Method == "PUT" || q.Method == "PATCH" {
		var err error
		if q.body, err = decode(q.Request); err != nil {
			return refusal(http.StatusBadRequest, "", "The body is malformed: "+err.Error())
		}
		if a, ok := q.checkTypes(); !ok {
			return a
		}
	}
	return handle(q)
}

func (b *Broker) instance(q request) *instance { return b.instances[q.key()] }

// advance carries out what is due of the instance and its bindings.
func (b *Broker) advance(q request) {
	if i := b.instance(q); i != nil {
		i.operation.advance()
		for _, bound := range i.bindings {
			bound.operation.advance()
		}
	}
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }
