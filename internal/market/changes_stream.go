package market

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// event is one event of the changes, encoded once for all followers.
type event struct {
	name, id string
	// message is the event as WebSockets send it, {"event": name, "id": id, "data": data}; data is a part of it.
	message, data []byte
}

func newEvent(name, id string, data []byte) *event {
	message := fmt.Appendf(make([]byte, 0, len(data)+len(name)+len(id)+32), `{"event":%q,"id":%q,"data":`, name, id)
	before := len(message)
	message = append(append(message, data...), '}')
	return &event{name, id, message, message[before : len(message)-1]}
}

// stream is the way to one follower.
type stream interface {
	// send sends events. The error is that the follower has gone, or takes too long.
	send(events []*event) error
	// beat shows either side that the other is there. Its error is that of send.
	beat() error
	// gone is closed when the follower has gone.
	gone() <-chan struct{}
	// end says that nothing more comes.
	end(why ending)
}

// ending is the reason why nothing more comes, in the codes of WebSockets (RFC 6455, section 7.4.1).
type ending struct {
	code   websocket.StatusCode
	reason string
}

var (
	followerGone = ending{}
	tokenEnded   = ending{websocket.StatusPolicyViolation, "the token has ended"}
	brokerEnds   = ending{websocket.StatusGoingAway, "the broker ends; come back"}
)

// eventStream sends server-sent events (HTML Standard, 9.2).
type eventStream struct {
	io.Writer
	until    func(time.Time) error
	flush    func() error
	patience time.Duration
	closed   <-chan struct{}
	close    func() error
}

// eventStreamHeader sets the header of an answer with events.
func eventStreamHeader(c *call) {
	header := c.ResponseWriter.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // proxies that know it pass each event on at once
}

// openEventStream answers with the header, and takes an HTTP/1 connection over: with what net/http holds for it, a
// follower would cost 30 kB more.
func openEventStream(c *call, patience time.Duration) (stream, error) {
	eventStreamHeader(c)
	out := http.NewResponseController(c.ResponseWriter)
	if c.ProtoMajor > 1 {
		c.ResponseWriter.WriteHeader(http.StatusOK)
		_ = out.SetReadDeadline(time.Time{}) // the request has been read
		return &eventStream{c.ResponseWriter, out.SetWriteDeadline, out.Flush, patience, c.Context().Done(), func() error { return nil }}, nil
	}
	c.ResponseWriter.Header().Set("Transfer-Encoding", "identity") // for net/http: without chunks, until the connection is closed
	c.ResponseWriter.WriteHeader(http.StatusOK)
	conn, _, err := out.Hijack() // which sends the header
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = conn.Read(make([]byte, 1)) // nothing is expected
	}()
	return &eventStream{conn, conn.SetWriteDeadline, func() error { return nil }, patience, closed, conn.Close}, nil
}

func (s *eventStream) send(events []*event) error {
	var text net.Buffers
	for _, e := range events {
		text = append(text, fmt.Appendf(nil, "event: %s\nid: %s\ndata: ", e.name, e.id), e.data, []byte("\n\n")) // data has no line breaks
	}
	return s.write(text)
}

func (s *eventStream) beat() error { return s.write(net.Buffers{[]byte(": \n\n")}) }

// write writes, and flushes, within patience.
func (s *eventStream) write(text net.Buffers) error {
	if err := s.until(time.Now().Add(s.patience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := text.WriteTo(s.Writer); err != nil {
		return err
	}
	return s.flush()
}

func (s *eventStream) gone() <-chan struct{} { return s.closed }

func (s *eventStream) end(ending) { _ = s.close() }

// webSocket sends the events as text messages (RFC 6455). A message of the follower ends it, unread: none is expected.
type webSocket struct {
	*websocket.Conn
	// open ends with the connection.
	open     context.Context
	patience time.Duration
}

// asksForWebSocket reports whether a request asks to go on as a WebSocket.
func asksForWebSocket(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// openWebSocket accepts a WebSocket. A browser's page of another origin gets none, though it would need a token, too.
// Without compression, because each connection would keep a window for it.
func openWebSocket(c *call, patience time.Duration) (stream, error) {
	answer := &refusals{ResponseWriter: c.ResponseWriter}
	conn, err := websocket.Accept(answer, c.Request, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	switch {
	case err == nil:
		return &webSocket{conn, conn.CloseRead(context.Background()), patience}, nil
	case answer.status == http.StatusForbidden:
		return nil, &Error{Status: answer.status, Code: codeForbidden, Description: "Origin: want " + c.Host + " or none; " + c.Request.Header.Get("Origin") + " may not open a WebSocket here."}
	case answer.status >= http.StatusInternalServerError:
		return nil, err
	}
	return nil, &Error{Status: answer.status, Code: codeBadRequest, Description: "The request opens no WebSocket: " + strings.TrimSpace(answer.why.String()) + "."}
}

// refusals keeps an error answer, which the market gives in its own form.
type refusals struct {
	http.ResponseWriter
	status int
	why    strings.Builder
}

// Unwrap is how the connection is taken over, see http.ResponseController.
func (r *refusals) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *refusals) WriteHeader(status int) {
	if r.status = status; status == http.StatusSwitchingProtocols {
		r.ResponseWriter.WriteHeader(status)
	}
}

func (r *refusals) Write(text []byte) (int, error) { return r.why.Write(text) }

func (s *webSocket) send(events []*event) error {
	until, cancel := context.WithTimeout(s.open, s.patience)
	defer cancel()
	for _, e := range events {
		if err := s.Write(until, websocket.MessageText, e.message); err != nil {
			return err
		}
	}
	return nil
}

// beat sends a ping, and waits for the pong.
func (s *webSocket) beat() error {
	until, cancel := context.WithTimeout(s.open, s.patience)
	defer cancel()
	return s.Ping(until)
}

func (s *webSocket) gone() <-chan struct{} { return s.open.Done() }

func (s *webSocket) end(why ending) {
	if why != followerGone {
		_ = s.Close(why.code, why.reason) // it may have gone
	}
	_ = s.CloseNow()
}
