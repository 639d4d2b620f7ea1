package did

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDID is the longest DID, and the longest fragment, in bytes. The did:key of an RSA key of
// 4096 bits has some 730, which its DID URL repeats as the fragment.
const maxDID = 1024

const (
	methodWeb = "did:web:"
	methodKey = "did:key:"
)

// Split returns the DID and the fragment of a DID URL: did:web:a.example#key-1 is key-1 of
// did:web:a.example. DID URLs with a path or a query, or without a fragment, name no key and
// are an *InvalidError.
func Split(id string) (did, fragment string, err error) {
	did, fragment, ok := strings.Cut(id, "#")
	if !ok || fragment == "" {
		return "", "", invalid(clip(id), "it has no fragment that names a key")
	}
	if err := checkDID(did); err != nil {
		return "", "", &InvalidError{ID: clip(id), Err: err}
	}
	if len(fragment) > maxDID {
		return "", "", invalid(clip(id), "its fragment is longer than %d bytes", maxDID)
	}
	for _, r := range fragment {
		// RFC 3986, 3.5, except sub-delimiters that are not used in key names.
		if !isIDChar(r) && !strings.ContainsRune(":%~/?@!$&+=", r) {
			return "", "", invalid(clip(id), "its fragment holds %q", r)
		}
	}
	return did, fragment, nil
}

// checkDID checks the syntax of a DID (DID Core 1.0, 3.1).
func checkDID(did string) error {
	if len(did) > maxDID {
		return fmt.Errorf("longer than %d bytes", maxDID)
	}
	rest, ok := strings.CutPrefix(did, "did:")
	method, rest, found := strings.Cut(rest, ":")
	if !ok || !found || method == "" || rest == "" || strings.HasSuffix(rest, ":") {
		return errors.New("not a DID")
	}
	for _, r := range method {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return fmt.Errorf("the name of its method holds %q", r)
		}
	}
	for i, r := range rest {
		switch {
		case isIDChar(r) || r == ':':
		case r == '%' && i+2 < len(rest) && isHex(rest[i+1]) && isHex(rest[i+2]):
		default:
			return fmt.Errorf("it holds %q", r)
		}
	}
	return nil
}

func isIDChar(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// absolute resolves an id of a DID document against the DID; relative ids are
// fragments (DID Core 1.0, 3.2.2).
func absolute(did, id string) string {
	if strings.HasPrefix(id, "#") {
		return did + id
	}
	return id
}

// WebURL returns the URL of a did:web's DID document (did:web method, "Read"):
// did:web:a.example%3A8443:units:x is at https://a.example:8443/units/x/did.json. The error is
// an *InvalidError.
func WebURL(did string) (string, error) {
	u, err := webURL(did)
	if err != nil {
		return "", &InvalidError{ID: clip(did), Err: err}
	}
	return u.String(), nil
}

// WebHost returns the host of a did:web, in lower case and without port, as Resolver.Hosts
// takes it. The error is an *InvalidError.
func WebHost(did string) (string, error) {
	u, err := webURL(did)
	if err != nil {
		return "", &InvalidError{ID: clip(did), Err: err}
	}
	return u.Hostname(), nil
}

func webURL(did string) (*url.URL, error) {
	if err := checkDID(did); err != nil {
		return nil, err
	}
	rest, ok := strings.CutPrefix(did, methodWeb)
	if !ok {
		return nil, errors.New("not a did:web")
	}
	host, path, hasPath := strings.Cut(rest, ":")
	host, err := url.PathUnescape(host) // only the port's colon: checkHost allows no other escapes
	if err != nil {
		return nil, err
	}
	raw := "/.well-known/did.json"
	if hasPath {
		if strings.HasPrefix(path, ":") || strings.Contains(path, "::") {
			return nil, errors.New("its path has an empty segment")
		}
		raw = "/" + strings.ReplaceAll(path, ":", "/") + "/did.json"
	}
	// The URL is not parsed as a whole: no character of the DID may end up in another part of
	// it.
	u := &url.URL{Scheme: "https", Host: strings.ToLower(host), RawPath: raw}
	if u.Path, err = url.PathUnescape(raw); err != nil {
		return nil, err
	}
	return u, checkURL(u)
}

// checkURL accepts URLs that an untrusted party may make Sluice fetch: https, a host name, no
// credentials, and a path that every parser reads the same way.
func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "https":
		return errors.New("its scheme is not https")
	case u.User != nil:
		return errors.New("it holds credentials")
	case u.Opaque != "", u.Host == "":
		return errors.New("it names no host")
	case u.Fragment != "":
		return errors.New("it has a fragment")
	}
	if err := checkHost(u.Host); err != nil {
		return err
	}
	for segment := range strings.SplitSeq(strings.TrimPrefix(u.EscapedPath(), "/"), "/") {
		if err := checkSegment(segment); err != nil {
			return err
		}
	}
	return nil
}

// checkHost requires a host name, with or without a port. Some parsers read names whose last
// label is a number as IPv4 addresses (WHATWG URL, "ends in a number").
func checkHost(host string) error {
	name, port, hasPort := strings.Cut(host, ":")
	if n, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || n == 0 || port[0] == '0' || port[0] == '+') {
		return errors.New("its port is not a number from 1 to 65535")
	}
	if len(name) > 253 {
		return errors.New("its host name is longer than 253 bytes")
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return errors.New("its host is not a DNS name")
		}
		for _, r := range label {
			if r == '.' || r == '_' || !isIDChar(r) {
				return errors.New("its host is not a DNS name")
			}
		}
	}
	last := strings.ToLower(labels[len(labels)-1])
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "" {
		return errors.New("its host is an IP address")
	}
	return nil
}

// checkSegment refuses path segments that change their meaning when decoded once more, or that
// lead upwards.
func checkSegment(escaped string) error {
	segment, err := url.PathUnescape(escaped)
	if err != nil {
		return errors.New("its path is not well encoded")
	}
	if segment == "." || segment == ".." {
		return errors.New("its path has a dot segment")
	}
	if !utf8.ValidString(segment) || strings.ContainsFunc(segment, unicode.IsControl) || strings.ContainsAny(segment, `/\%?#;`) {
		return errors.New("its path holds an encoded delimiter")
	}
	return nil
}

// clip shortens an identifier for an error message.
func clip(id string) string {
	const most = 128
	if len(id) > most {
		id = id[:most] + "…"
	}
	if strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(id) {
		return strconv.QuoteToASCII(id)
	}
	return id
}
