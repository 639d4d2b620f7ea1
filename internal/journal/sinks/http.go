package sinks

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/guarded"
)

const (
	// keyPrefix and the lengths of keys in bytes are those of Standard Webhooks 1.0, "Signature scheme".
	keyPrefix               = "whsec_"
	shortestKey, longestKey = 24, 64
	// longestAnswer is the number of bytes of an answer that are read, so that its connection can be used again.
	longestAnswer = 64 << 10
)

// NewKey returns a random key for a sink.
func NewKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return keyPrefix + base64.StdEncoding.EncodeToString(key)
}

// parseKey decodes a key.
func parseKey(key string) ([]byte, error) {
	encoded, hasPrefix := strings.CutPrefix(key, keyPrefix)
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !hasPrefix || len(raw) < shortestKey || len(raw) > longestKey {
		return nil, fmt.Errorf("key: want %s and the base64 of %d to %d bytes, as in Standard Webhooks", keyPrefix, shortestKey, longestKey)
	}
	return raw, nil
}

// httpTarget is the HTTP end of a sink.
type httpTarget struct {
	url    string
	client *http.Client
	signer *standardwebhooks.Webhook
}

func newHTTP(spec *v1alpha1.EventSinkSpec, key string, by means) (target, error) {
	raw, err := parseKey(key)
	if err != nil {
		return nil, err
	}
	signer, err := standardwebhooks.NewWebhookRaw(raw)
	if err != nil {
		return nil, err
	}
	by.reach.MaxBytes = longestAnswer
	return &httpTarget{url: spec.URL, client: guarded.NewClient(by.reach), signer: signer}, nil
}

// deliver posts an event, signed.
func (t *httpTarget) deliver(ctx context.Context, e cloudevents.Event, encoded []byte) error {
	now := time.Now()
	signature, err := t.signer.Sign(e.ID(), now, encoded)
	if err != nil {
		return fmt.Errorf("sign event %s: %w", e.ID(), err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set(standardwebhooks.HeaderWebhookID, e.ID())
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	answer, err := t.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("it answered %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	return nil
}

func (t *httpTarget) close() { t.client.CloseIdleConnections() }
