package selfdescription

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Limits of a status list, in bits.
const (
	MinStatusList = 131_072   // herd privacy (Bitstring Status List v1.0, 6.2)
	MaxStatusList = 8_388_608 // 1 MiB, decompressed
)

// StatusList is a list of bits, one for each credential on it.
type StatusList struct{ bits []byte }

// NewStatusList returns a list with room for a number of credentials, at least MinStatusList,
// with no bit set. A list of more than MaxStatusList bits is refused by every reader.
func NewStatusList(credentials int) *StatusList {
	return &StatusList{bits: make([]byte, (max(credentials, MinStatusList)+7)/8)}
}

// Len returns the number of bits.
func (l *StatusList) Len() int { return 8 * len(l.bits) }

// Get returns a bit. Index 0 is the leftmost one (Bitstring Status List v1.0, 3.1). An index
// outside the list is an error.
func (l *StatusList) Get(index int) (bool, error) {
	if index < 0 || index >= l.Len() {
		return false, fmt.Errorf("index %d is outside a status list of %d bits", index, l.Len())
	}
	return l.bits[index/8]&(0x80>>(index%8)) != 0, nil
}

// Set writes a bit. An index outside the list is an error.
func (l *StatusList) Set(index int, value bool) error {
	if _, err := l.Get(index); err != nil {
		return err
	}
	mask := byte(0x80 >> (index % 8))
	if value {
		l.bits[index/8] |= mask
	} else {
		l.bits[index/8] &^= mask
	}
	return nil
}

// Document returns the credential that publishes the list at a URL. The caller must set
// ValidFrom.
func (l *StatusList) Document(url string, purpose StatusPurpose) Document {
	return Document{ID: url, Subject: map[string]any{
		"id": url + "#list", "type": TypeStatusList, "statusPurpose": string(purpose), "encodedList": l.Encode(),
	}}
}

// Encode compresses the list (Bitstring Status List v1.0, 3.3): multibase base64url of gzip.
func (l *StatusList) Encode() string {
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, err := w.Write(l.bits)
	if err := errors.Join(err, w.Close()); err != nil {
		panic(err) // a bytes.Buffer takes everything
	}
	return "u" + base64.RawURLEncoding.EncodeToString(compressed.Bytes())
}

// decodeStatusList decompresses a list (Bitstring Status List v1.0, 3.4). It never uses more
// memory than MaxStatusList.
func decodeStatusList(encoded string) (*StatusList, error) {
	raw, ok := strings.CutPrefix(encoded, "u")
	if !ok {
		return nil, errors.New("not multibase base64url: it does not begin with u")
	}
	compressed, err := decodeBase64(raw)
	if err != nil {
		return nil, err
	}
	in := bytes.NewReader(compressed)
	r, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("expand: %w", err)
	}
	r.Multistream(false)
	bits, err := io.ReadAll(io.LimitReader(r, MaxStatusList/8+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("expand: %w", err)
	case len(bits) > MaxStatusList/8:
		return nil, fmt.Errorf("more than %d bits", MaxStatusList)
	case len(bits) < MinStatusList/8:
		return nil, fmt.Errorf("%d bits, want %d at least", 8*len(bits), MinStatusList)
	case in.Len() > 0:
		return nil, fmt.Errorf("%d bytes after the end of the list", in.Len())
	}
	return &StatusList{bits: bits}, nil
}

// readStatus reads credentialStatus, one entry or several. An entry of an unknown type is
// refused, because Sluice could not check whether the credential was revoked.
func readStatus(value any) ([]StatusEntry, error) {
	var list []any
	switch value := value.(type) {
	case nil:
		return nil, nil
	case []any:
		list = value
	default:
		list = []any{value}
	}
	if len(list) > maxStatusEntries {
		return nil, fmt.Errorf("/credentialStatus: more than %d entries", maxStatusEntries)
	}
	var entries []StatusEntry
	for i, element := range list {
		entry, err := readStatusEntry(element)
		if err != nil {
			return nil, fmt.Errorf("/credentialStatus/%d%w", i, err)
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// maxStatusEntries limits how many lists are fetched for one credential.
const maxStatusEntries = 4

func readStatusEntry(value any) (entry StatusEntry, err error) {
	object, ok := value.(map[string]any)
	if !ok || !hasType(object["type"], typeStatusListEntry) {
		return entry, fmt.Errorf("/type: want %s", typeStatusListEntry)
	}
	if err := plainMembers(object, ""); err != nil {
		return entry, err
	}
	if size, there := object["statusSize"]; there {
		if number, _ := size.(json.Number); !isOne(number) {
			return entry, fmt.Errorf("/statusSize: want 1, got %s", brief(size))
		}
	}
	purpose, err := text(object, "statusPurpose")
	if err != nil {
		return entry, err
	}
	entry.Purpose = StatusPurpose(purpose)
	if entry.List, err = text(object, "statusListCredential"); err != nil {
		return entry, err
	}
	index, _ := object["statusListIndex"].(string)
	n, err := strconv.ParseUint(index, 10, 31)
	if err != nil || strconv.FormatUint(n, 10) != index {
		return entry, fmt.Errorf("/statusListIndex: want a string with a number that is not negative, without leading zeros, got %s", brief(object["statusListIndex"]))
	}
	entry.Index = int(n)
	if object["id"] == entry.List { // Bitstring Status List v1.0, 2.1
		return entry, fmt.Errorf("/id: must not be the URL of the list, %s", brief(entry.List))
	}
	return entry, nil
}

func isOne(number json.Number) bool {
	value, err := number.Float64()
	return err == nil && value == 1
}

// StatusSource returns the status list credential that is published at a URL.
type StatusSource interface {
	// StatusList returns a VC-JWT in compact serialisation, which is named by a credential of an
	// issuer. It may block until ctx ends. It may cache. Every error counts as temporary.
	StatusList(ctx context.Context, issuer, url string) (compact string, err error)
}

// temporaryError is an error of the network.
type temporaryError struct{ error }

func (temporaryError) Temporary() bool { return true }
func (e temporaryError) Unwrap() error { return e.error }

// status checks whether a credential is revoked or suspended by one of its lists. found
// describes the entries that were checked; looked is true if there was at least one. If there
// is an error, the state is that of the credential.
func (v *Verifier) status(ctx context.Context, c *Credential) (found string, looked bool, state State, err error) {
	var clear, unread []string
	for _, entry := range c.Status {
		state, err := v.statusEntry(ctx, c.Issuer, entry)
		switch {
		case err != nil:
			return "", true, state, err
		case state == Verified:
			clear = append(clear, fmt.Sprintf("no %s by %s", entry.Purpose, entry.List))
		default:
			unread = append(unread, fmt.Sprintf("not looked at: purpose %s of %s", brief(string(entry.Purpose)), brief(entry.List)))
		}
	}
	return strings.Join(append(clear, unread...), "; "), len(clear) > 0, Verified, nil
}

// statusEntry checks one list. The state is empty for a purpose that does not end a credential.
func (v *Verifier) statusEntry(ctx context.Context, issuer string, entry StatusEntry) (State, error) {
	var state State
	switch entry.Purpose {
	case PurposeRevocation:
		state = Revoked
	case PurposeSuspension:
		state = Suspended
	default: // a message, or when to refresh
		return "", nil
	}
	list, err := v.statusList(ctx, issuer, entry)
	if err != nil {
		return Rejected, fmt.Errorf("status list %s: %w", entry.List, err)
	}
	set, err := list.Get(entry.Index)
	if err != nil {
		return Rejected, fmt.Errorf("status list %s: %w", entry.List, err)
	}
	if set {
		return state, fmt.Errorf("/credentialStatus: %s since bit %d of %s is set", state, entry.Index, entry.List)
	}
	return Verified, nil
}

// statusList fetches and verifies one list.
func (v *Verifier) statusList(ctx context.Context, issuer string, entry StatusEntry) (*StatusList, error) {
	if v.Statuses == nil {
		return nil, errors.New("cannot be looked at here")
	}
	compact, err := v.Statuses.StatusList(ctx, issuer, entry.List)
	if err != nil {
		return nil, temporaryError{err}
	}
	checks := NewChecks(StepParse, StepAlgorithm, StepKey, StepSignature, StepWindow)
	list, report := v.signed(ctx, compact, MaxStatusListToken, checks)
	if failed := report.Failed(); failed != nil {
		err := fmt.Errorf("%s: %s", failed.Name, failed.Message)
		if report.Temporary {
			err = temporaryError{err}
		}
		return nil, err
	}
	if list.Type != TypeStatusList {
		return nil, fmt.Errorf("holds a %s, want a %s", list.Type, TypeStatusList)
	}
	if !hasType(list.types, typeStatusListCredential) {
		return nil, fmt.Errorf("/type: want %s to be one of them", typeStatusListCredential)
	}
	if list.ID != "" && list.ID != entry.List {
		return nil, fmt.Errorf("is the list %s", list.ID)
	}
	if len(list.Status) > 0 {
		return nil, errors.New("has a credentialStatus of its own")
	}
	if list.Issuer != issuer && !v.mayKeepLists(list.Issuer) {
		return nil, fmt.Errorf("issued by %s, who keeps no lists for %s", list.Issuer, issuer)
	}
	if !hasPurpose(list.Claims["statusPurpose"], entry.Purpose) {
		return nil, fmt.Errorf("/credentialSubject/statusPurpose: want %s, got %s", entry.Purpose, brief(list.Claims["statusPurpose"]))
	}
	encoded, err := text(list.Claims, "encodedList")
	if err != nil {
		return nil, fmt.Errorf("/credentialSubject%w", err)
	}
	bits, err := decodeStatusList(encoded)
	if err != nil {
		return nil, fmt.Errorf("/credentialSubject/encodedList: %w", err)
	}
	return bits, nil
}

// IsStatusList reports whether a token has the form of a status list. It may be forged.
func IsStatusList(compact string) bool {
	_, list, err := parseCredential(compact, MaxStatusListToken)
	if err != nil || list.Type != TypeStatusList || !hasType(list.types, typeStatusListCredential) {
		return false
	}
	encoded, err := text(list.Claims, "encodedList")
	if err == nil {
		_, err = decodeStatusList(encoded)
	}
	return err == nil
}

// mayKeepLists reports whether an issuer may publish status lists for others' credentials.
func (v *Verifier) mayKeepLists(issuer string) bool {
	if v.Issuers == nil {
		return false
	}
	assurance, ok := v.Issuers(issuer, TypeStatusList)
	return ok && assurance.rank() > Self.rank()
}

func hasPurpose(value any, want StatusPurpose) bool {
	list, ok := value.([]any)
	return ok && slices.Contains(list, any(string(want))) || value == string(want)
}
