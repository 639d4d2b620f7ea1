package probe

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Client is a probe.
type Client struct {
	// Broker is its URL, for instance https://broker.example.
	Broker string
	// Instance is the name of the probe's ServiceInstance.
	Instance string
	// Start is a text that the broker changes for each new pod of the probe; empty in the first.
	Start string
	// Token returns the probe's token, for each connection.
	Token func() (string, error)
	// HTTP opens the connections; nil means http.DefaultClient.
	HTTP *http.Client
	// Logger reports what happens.
	Logger *slog.Logger
}

const (
	// steady is how long a connection lasts before the next one is tried as soon as the first.
	steady = time.Minute
	// silence is how long a broker that does not answer counts as there.
	silence = 30 * time.Second
)

// pauses are the times between attempts.
var pauses = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: time.Minute}

// Run answers the broker until ctx ends. It connects again whenever the connection ends.
func (c *Client) Run(ctx context.Context) {
	backoff := pauses
	for {
		began := time.Now()
		pause, err := c.answer(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= steady {
			backoff = pauses
		}
		if pause == 0 {
			pause = backoff.Step()
		}
		c.Logger.Warn("not connected", "broker", c.Broker, "reason", err, "wait", pause.Round(time.Millisecond))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// answer connects, and answers until the connection ends. pause is how long the broker says to wait; zero if it says
// nothing.
func (c *Client) answer(ctx context.Context) (pause time.Duration, err error) {
	token, err := c.Token()
	if err != nil {
		return 0, err
	}
	dialing, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	conn, response, err := websocket.Dial(dialing, strings.TrimSuffix(c.Broker, "/")+Prefix+c.Instance, &websocket.DialOptions{
		HTTPClient: c.HTTP, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}, startHeader: {c.Start}},
	})
	if err != nil {
		return refused(response, err)
	}
	defer func() { _ = conn.CloseNow() }()
	c.Logger.Info("connected", "broker", c.Broker)
	conn.SetReadLimit(TransferBytes)
	open, end := context.WithCancel(ctx)
	defer end()
	go keep(open, conn)
	for {
		_, message, err := conn.Read(open)
		if err != nil {
			if ctx.Err() != nil {
				_ = conn.Close(websocket.StatusNormalClosure, "the probe ends")
			}
			if closed := (websocket.CloseError{}); errors.As(err, &closed) {
				return 0, fmt.Errorf("the broker has closed the connection: %s", closed.Reason)
			}
			return 0, err
		}
		digest := sha256.Sum256(message)
		if err := conn.Write(open, websocket.MessageBinary, digest[:]); err != nil {
			return 0, err
		}
	}
}

// keep closes the connection if the broker has gone without a word.
func keep(ctx context.Context, conn *websocket.Conn) {
	tick := time.NewTicker(silence)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked, cancel := context.WithTimeout(ctx, silence)
		err := conn.Ping(asked)
		cancel()
		if err != nil {
			_ = conn.CloseNow()
			return
		}
	}
}

// refused returns the reason why no connection was opened, in the words of the broker if it answered.
func refused(response *http.Response, err error) (pause time.Duration, why error) {
	if response == nil {
		return 0, err
	}
	defer response.Body.Close()
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		pause = min(time.Duration(seconds)*time.Second, pauses.Cap)
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
	var said struct{ Description string }
	if json.Unmarshal(body, &said) == nil && said.Description != "" {
		return pause, fmt.Errorf("the broker answers %s: %s", response.Status, said.Description)
	}
	return pause, fmt.Errorf("the broker answers %s", response.Status)
}
