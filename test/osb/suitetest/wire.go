package suitetest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type object = map[string]any

// maxBody in bytes and maxDepth in levels of what the fake reads.
const (
	maxBody  = 1 << 20
	maxDepth = 100
)

// answer is a response before it is written.
type answer struct {
	status int
	header http.Header
	body   object // nil: none
}

func (a answer) write(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_ = json.MarshalWrite(w, a.body, json.Deterministic(true))
}

func refusal(status int, code, description string) answer {
	body := object{"description": description}
	if code != "" {
		body["error"] = code
	}
	return answer{status: status, body: body}
}

func badRequest(format string, args ...any) answer {
	return refusal(http.StatusBadRequest, "", fmt.Sprintf(format, args...))
}

func notFound() answer { return refusal(http.StatusNotFound, "", "There is no such thing here.") }

func gone() answer { return answer{status: http.StatusGone, body: object{}} }

func asyncRequired() answer {
	return refusal(http.StatusUnprocessableEntity, "AsyncRequired",
		"This service plan requires client support for asynchronous service operations.")
}

func concurrencyError() answer {
	return refusal(http.StatusUnprocessableEntity, "ConcurrencyError",
		"The Service Broker does not support concurrent requests that mutate the same resource.")
}

// Credentials of the fake's platforms.
const (
	FirstUsername, FirstPassword   = "first", "first-password"
	FirstPreviousPassword          = "first-previous-password"
	FirstToken                     = "first-token"
	SecondUsername, SecondPassword = "second", "second-password"
)

func authenticate(r *http.Request) (platform string, known bool) {
	if r.Header.Get("Authorization") == "Bearer "+FirstToken {
		return FirstUsername, true
	}
	username, password, _ := r.BasicAuth()
	switch username {
	case FirstUsername:
		return username, password == FirstPassword || password == FirstPreviousPassword
	case SecondUsername:
		return username, password == SecondPassword
	}
	return "", false
}

// minorVersion of the API that the client is answered in.
func minorVersion(header string) (int, bool) {
	text, isMajor2 := strings.CutPrefix(header, "2.")
	minor, err := strconv.Atoi(text)
	return min(minor, 17), isMajor2 && err == nil && minor >= 13
}

// request is one call, authenticated and routed.
type request struct {
	*http.Request
	platform              string
	version               int
	instanceID, bindingID string
	identityPlatform      string
	body                  object
}

func (q *request) key() instanceKey { return instanceKey{q.platform, q.instanceID} }

func (q *request) asynchronous() bool { return q.URL.Query().Get("accepts_incomplete") == "true" }

// text is a member of the body, empty where it is absent.
func (q *request) text(name string) string {
	value, _ := q.body[name].(string)
	return value
}

func (q *request) object(name string) object {
	value, _ := q.body[name].(object)
	return value
}

func (q *request) readIdentity() (answer, bool) {
	header := q.Header.Get("X-Broker-API-Originating-Identity")
	if header == "" {
		return answer{}, true
	}
	parts := strings.Split(header, " ")
	if len(parts) != 2 {
		return badRequest("The originating identity is not a platform and a value."), false
	}
	document, err := base64.StdEncoding.DecodeString(parts[1])
	var value object
	if err == nil {
		err = json.Unmarshal(document, &value)
	}
	if err != nil || value == nil {
		return badRequest("The originating identity's value is not a JSON object in Base64."), false
	}
	q.identityPlatform = parts[0]
	return answer{}, true
}

// decode reads a JSON object: no member twice, valid UTF-8, nothing after it.
func decode(r *http.Request) (object, error) {
	document, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, err
	}
	if len(document) > maxBody {
		return nil, errors.New("it is too long")
	}
	for decoder := jsontext.NewDecoder(strings.NewReader(string(document))); ; {
		if _, err := decoder.ReadToken(); err != nil {
			break // the end, or found again below
		}
		if decoder.StackDepth() > maxDepth {
			return nil, errors.New("it is too deep")
		}
	}
	var body object
	if err := json.Unmarshal(document, &body); err != nil {
		return nil, errors.New("it is not a JSON object")
	}
	if body == nil {
		return nil, errors.New("it is null")
	}
	return body, nil
}

// checkTypes of the members that the fake knows, whatever the route.
func (q *request) checkTypes() (answer, bool) {
	for _, name := range []string{"service_id", "plan_id", "organization_guid", "space_guid", "app_guid", "predecessor_binding_id"} {
		value, there := q.body[name]
		if text, isText := value.(string); there && (!isText || text == "") {
			return badRequest("%s is not a non-empty string.", name), false
		}
	}
	for _, name := range []string{"parameters", "context", "maintenance_info", "bind_resource", "previous_values"} {
		if value, there := q.body[name]; there {
			if _, isObject := value.(object); !isObject {
				return badRequest("%s is not an object.", name), false
			}
		}
	}
	platform, there := q.object("context")["platform"]
	if there && q.identityPlatform != "" && platform != q.identityPlatform {
		return badRequest("The originating identity is of another platform than the context."), false
	}
	return answer{}, true
}

// entityTag of a catalog.
func entityTag(body object) string {
	document, _ := json.Marshal(body, json.Deterministic(true))
	sum := sha256.Sum256(document)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// matches says whether If-None-Match names the entity tag, RFC 7232 section 3.2.
func matches(ifNoneMatch, tag string) bool {
	return ifNoneMatch == "*" || slices.ContainsFunc(strings.Split(ifNoneMatch, ","), func(sent string) bool {
		return strings.TrimPrefix(strings.TrimSpace(sent), "W/") == tag
	})
}

func number(n int) string { return strconv.Itoa(n) }
