package backup

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// longestFirstLine is more than any version of the first line has.
const longestFirstLine = 64

// Reasons to refuse a backup, in the errors of Read.
var (
	ErrNotBackup = errors.New("this is not a backup of a hub")
	ErrVersion   = errors.New("the backup has another format; restore it with the version of Sluice that made it")
	ErrWrongKey  = errors.New("the backup is sealed for another key")
	ErrDamaged   = errors.New("the backup is damaged or not complete; use another copy, or an older one")
)

// Read passes each file and resource of a backup to do, in their order, and returns the header. An error of do ends it. If
// the error is nil, the backup was complete and unaltered; before that, do may have got a part of it.
func Read(r io.Reader, identities []age.Identity, do func(Entry) error) (*Header, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	if err := readMagic(buffered); err != nil {
		return nil, err
	}
	opened, err := age.Decrypt(buffered, identities...)
	if mismatch := (*age.NoIdentityMatchError)(nil); errors.As(err, &mismatch) {
		return nil, ErrWrongKey
	}
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrDamaged, err)
	}
	unzipped, err := gzip.NewReader(opened)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrDamaged, err)
	}
	return readEntries(bufio.NewReaderSize(unzipped, 64<<10), do)
}

// readMagic reads the first line.
func readMagic(r *bufio.Reader) error {
	start, _ := r.Peek(longestFirstLine) // a shorter file has no end of line, or is cut
	line, _, ended := strings.Cut(string(start), "\n")
	version, is := strings.CutPrefix(line, Magic)
	switch {
	case !is || !ended:
		return ErrNotBackup
	case version != Format:
		return fmt.Errorf("%w: it has format %.20q, this Sluice reads %q", ErrVersion, version, Format)
	}
	_, err := r.Discard(len(line) + 1)
	return err
}

// readEntries reads the lines up to the end of the backup, and nothing may follow it.
func readEntries(r *bufio.Reader, do func(Entry) error) (*Header, error) {
	var header *Header
	sum := sha256.New()
	for entries := 0; ; entries++ {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%w (%w)", ErrDamaged, unexpected(err))
		}
		var entry Entry
		if err := json.Unmarshal(line, &entry); err != nil {
			return nil, fmt.Errorf("%w (entry %d: %w)", ErrDamaged, entries, err)
		}
		switch {
		case (entries == 0) != (entry.Header != nil):
			return nil, fmt.Errorf("%w (the header is not its first entry)", ErrDamaged)
		case entry.Header != nil:
			header = entry.Header
		case entry.End != nil:
			if entry.End.Entries != entries || !bytes.Equal(entry.End.SHA256, sum.Sum(nil)) {
				return nil, fmt.Errorf("%w (its checksum does not fit)", ErrDamaged)
			}
			if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("%w (something follows its end)", ErrDamaged)
			}
			return header, nil
		default:
			if err := do(entry); err != nil {
				return nil, err
			}
		}
		sum.Write(line)
	}
}

// unexpected is the error of an end that comes too early.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
