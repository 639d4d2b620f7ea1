package did

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// Multicodec names of public keys, as did:key uses them: Ed25519 raw, ECDSA as a
// compressed point, RSA as a PKCS #1 RSAPublicKey (did:key method, "Signature Method
// Creation Algorithm").
const (
	codecEd25519 = 0xed
	codecP256    = 0x1200
	codecP384    = 0x1201
	codecRSA     = 0x1205
)

// KeyDID returns the did:key of a key, or of the public half of a private key. The key's DID
// URL repeats the part after "did:key:" as its fragment.
func KeyDID(jwk jose.JSONWebKey) (string, error) {
	public := jwk.Public()
	if err := checkJWK(&public); err != nil {
		return "", fmt.Errorf("name a key by did:key: %w", err)
	}
	var codec uint64
	var bytes []byte
	switch key := public.Key.(type) {
	case ed25519.PublicKey:
		codec, bytes = codecEd25519, key
	case *ecdsa.PublicKey:
		if codec = codecP256; key.Curve == elliptic.P384() {
			codec = codecP384
		}
		var err error
		if bytes, err = encodePoint(key); err != nil {
			return "", fmt.Errorf("name a key by did:key: %w", err)
		}
	case *rsa.PublicKey:
		codec, bytes = codecRSA, x509.MarshalPKCS1PublicKey(key)
	}
	return methodKey + "z" + base58(append(binary.AppendUvarint(nil, codec), bytes...)), nil
}

// keyOfDID decodes the key of a did:key. Every key has one name: a DID that KeyDID would write
// differently is refused.
func keyOfDID(did string) (*jose.JSONWebKey, error) {
	multibase, ok := strings.CutPrefix(did, methodKey+"z")
	if !ok {
		return nil, errors.New("not a did:key in base58btc")
	}
	data, err := unbase58(multibase)
	if err != nil {
		return nil, err
	}
	codec, n := binary.Uvarint(data)
	if n <= 0 {
		return nil, errors.New("it names no kind of key")
	}
	jwk := &jose.JSONWebKey{}
	if jwk.Key, err = decodeKey(codec, data[n:]); err != nil {
		return nil, err
	}
	canonical, err := KeyDID(*jwk) // also checks the key
	if err != nil {
		return nil, err
	}
	if canonical != did {
		return nil, errors.New("it is not the one way to write its key")
	}
	return jwk, nil
}

func decodeKey(codec uint64, data []byte) (any, error) {
	switch codec {
	case codecEd25519:
		if len(data) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("an Ed25519 key of %d bytes", len(data))
		}
		return ed25519.PublicKey(data), nil
	case codecP256:
		return decodePoint(elliptic.P256(), data)
	case codecP384:
		return decodePoint(elliptic.P384(), data)
	case codecRSA:
		key, err := x509.ParsePKCS1PublicKey(data)
		if err != nil {
			return nil, fmt.Errorf("parse the RSA key: %w", err)
		}
		return key, nil
	}
	return nil, fmt.Errorf("a key of kind %#x, want Ed25519, P-256, P-384 or RSA", codec)
}

// encodePoint compresses a point (SEC 1, 2.3.3): x, and whether y is odd.
func encodePoint(key *ecdsa.PublicKey) ([]byte, error) {
	point, err := key.Bytes() // 4, x, y
	if err != nil {
		return nil, err
	}
	x, y := point[1:1+len(point)/2], point[1+len(point)/2:]
	return append([]byte{2 | y[len(y)-1]&1}, x...), nil
}

func decodePoint(curve elliptic.Curve, data []byte) (any, error) {
	x, y := elliptic.UnmarshalCompressed(curve, data)
	if x == nil {
		return nil, fmt.Errorf("not a compressed point on %s", curve.Params().Name)
	}
	size := len(data) - 1
	point := append([]byte{4}, x.FillBytes(make([]byte, size))...)
	return ecdsa.ParseUncompressedPublicKey(curve, append(point, y.FillBytes(make([]byte, size))...))
}

const alphabet58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// base58 encodes bytes in base58btc. The first byte must not be zero.
func base58(data []byte) string {
	var reversed []byte
	n, digit, radix := new(big.Int).SetBytes(data), new(big.Int), big.NewInt(58)
	for n.Sign() > 0 {
		n.DivMod(n, radix, digit)
		reversed = append(reversed, alphabet58[digit.Int64()])
	}
	text := make([]byte, len(reversed))
	for i, c := range reversed {
		text[len(text)-1-i] = c
	}
	return string(text)
}

func unbase58(text string) ([]byte, error) {
	n, digit, radix := new(big.Int), new(big.Int), big.NewInt(58)
	for _, r := range text {
		i := strings.IndexRune(alphabet58, r)
		if i < 0 {
			return nil, fmt.Errorf("%q is no digit of base58btc", r)
		}
		n.Mul(n, radix).Add(n, digit.SetInt64(int64(i)))
	}
	return n.Bytes(), nil
}
