package backup

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"io"

	"filippo.io/age"
)

// Writer writes a backup. Without Close it is not one.
type Writer struct {
	sealed  io.WriteCloser
	zipped  *gzip.Writer
	sum     hash.Hash
	entries int
}

// NewWriter begins a backup that is sealed for recipients.
func NewWriter(w io.Writer, recipients []age.Recipient, header Header) (*Writer, error) {
	if _, err := io.WriteString(w, Magic+Format+"\n"); err != nil {
		return nil, fmt.Errorf("write backup: %w", err)
	}
	sealed, err := age.Encrypt(w, recipients...)
	if err != nil {
		return nil, fmt.Errorf("seal backup: %w", err)
	}
	zipped, err := gzip.NewWriterLevel(sealed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	b := &Writer{sealed: sealed, zipped: zipped, sum: sha256.New()}
	return b, b.write(Entry{Header: &header})
}

// File adds a file.
func (w *Writer) File(name string, content []byte) error {
	return w.write(Entry{File: &File{Name: name, Content: content}})
}

// Object adds a resource in JSON.
func (w *Writer) Object(object json.RawMessage) error { return w.write(Entry{Object: object}) }

// Close ends the backup. It does not close what it was written to.
func (w *Writer) Close() error {
	end := &End{Entries: w.entries, SHA256: w.sum.Sum(nil)}
	if err := w.write(Entry{End: end}); err != nil {
		return err
	}
	if err := w.zipped.Close(); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	if err := w.sealed.Close(); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return nil
}

func (w *Writer) write(entry Entry) error {
	line, err := json.Marshal(entry)
	if err != nil {
		return fmt.Errorf("encode an entry of the backup: %w", err)
	}
	line = append(line, '\n')
	w.sum.Write(line)
	w.entries++
	if _, err := w.zipped.Write(line); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return nil
}
