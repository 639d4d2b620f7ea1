package did

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// The test vectors of the did:key method.
func TestDIDKeyVectors(t *testing.T) {
	for _, row := range []struct{ name, did, jwk string }{
		{"P-256", "did:key:zDnaerDaTF5BXEavCrfRZEk316dpbLsfPDZ3WJ5hRTPFU2169",
			`{"kty":"EC","crv":"P-256","x":"fyNYMN0976ci7xqiSdag3buk-ZCwgXU4kz9XNkBlNUI","y":"hW2ojTNfH7Jbi8--CJUo3OCbH3y5n91g-IMA9MLMbTU"}`},
		{"P-384", "did:key:z82Lm1MpAkeJcix9K8TMiLd5NMAhnwkjjCBeWHXyu3U4oT2MVJJKXkcVBgjGhnLBn2Kaau9",
			`{"kty":"EC","crv":"P-384","x":"lInTxl8fjLKp_UCrxI0WDklahi-7-_6JbtiHjiRvMvhedhKVdHBfi2HCY8t_QJyc","y":"y6N1IC-2mXxHreETBW7K3mBcw0qGr3CWHCs-yl09yCQRLcyfGv7XhqAngHOu51Zv"}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			var want jose.JSONWebKey
			if err := json.Unmarshal([]byte(row.jwk), &want); err != nil {
				t.Fatal(err)
			}
			got, err := keyOfDID(row.did)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Key.(*ecdsa.PublicKey).Equal(want.Key) {
				t.Errorf("got %v", got.Key)
			}
		})
	}
	t.Run("Ed25519", func(t *testing.T) {
		got, err := keyOfDID("did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK")
		if err != nil {
			t.Fatal(err)
		}
		if key := hex.EncodeToString(got.Key.(ed25519.PublicKey)); key != "2e6fcce36701dc791488e0d0b1745cc1e33a4c1c9fcc41c63bd343dbbe0970e6" {
			t.Errorf("got %s", key)
		}
	})
}

func TestEveryKindOfKeyHasADIDThatNamesIt(t *testing.T) {
	for name, key := range testKeys(t) {
		t.Run(name, func(t *testing.T) {
			did, err := KeyDID(key)
			if err != nil {
				t.Fatal(err)
			}
			id := did + "#" + strings.TrimPrefix(did, "did:key:")
			var resolver Resolver
			got, err := resolver.Key(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			public := key.Public()
			if !got.JWK.Key.(interface{ Equal(crypto.PublicKey) bool }).Equal(public.Key) || got.ID != id || got.JWK.KeyID != id {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// testKeys are private keys, one of each kind.
func testKeys(t testing.TB) map[string]jose.JSONWebKey {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	fatal(t, err)
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	fatal(t, err)
	rsa2048, err := rsa.GenerateKey(rand.Reader, 2048)
	fatal(t, err)
	return map[string]jose.JSONWebKey{
		"Ed25519": {Key: edwards}, "P-256": {Key: p256}, "P-384": {Key: p384}, "RSA": {Key: rsa2048},
	}
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDIDKeysThatAreRefused(t *testing.T) {
	good := "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
	encode := func(codec uint64, key []byte) string {
		return "did:key:z" + base58(append(binary.AppendUvarint(nil, codec), key...))
	}
	raw, err := unbase58(strings.TrimPrefix(good, "did:key:z"))
	fatal(t, err)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	fatal(t, err)
	for name, did := range map[string]string{
		"nothing":                 "did:key:",
		"no multibase":            "did:key:6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK",
		"another base":            "did:key:f" + hex.EncodeToString(raw),
		"only a multibase":        "did:key:z",
		"a digit that is none":    good[:20] + "0" + good[21:],
		"leading zeros":           "did:key:z1" + strings.TrimPrefix(good, "did:key:z"),
		"a byte too many":         encode(codecEd25519, append(raw[2:], 0)),
		"a byte too few":          encode(codecEd25519, raw[2:33]),
		"codec in a longer form":  "did:key:z" + base58(append([]byte{0xed, 0x81, 0x00}, raw[2:]...)),
		"codec without end":       "did:key:z" + base58([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"X25519":                  encode(0xec, raw[2:]),
		"secp256k1":               encode(0xe7, append([]byte{2}, raw[2:]...)),
		"point not on the curve":  encode(codecP256, append([]byte{2}, make([]byte, 31, 32)...)),
		"x beyond the field":      encode(codecP256, append([]byte{2}, []byte(strings.Repeat("\xff", 32))...)),
		"point not compressed":    encode(codecP256, append([]byte{4}, make([]byte, 64)...)),
		"P-256 point for P-384":   encode(codecP384, append([]byte{2}, raw[2:]...)),
		"RSA of 1024 bits":        encode(codecRSA, x509.MarshalPKCS1PublicKey(&small.PublicKey)),
		"RSA that is not PKCS #1": encode(codecRSA, raw),
	} {
		if _, err := new(Resolver).Key(t.Context(), did+"#"+strings.TrimPrefix(did, "did:key:")); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := KeyDID(jose.JSONWebKey{Key: []byte("shared secret")}); err == nil {
		t.Error("a shared secret has a DID")
	}
}

// FuzzDIDKey looks for two names of one key.
func FuzzDIDKey(f *testing.F) {
	for _, key := range testKeys(f) {
		did, err := KeyDID(key)
		fatal(f, err)
		f.Add(did)
	}
	f.Add("did:key:z1")
	f.Fuzz(func(t *testing.T, did string) {
		if len(did) > maxDID {
			return // refused before it gets there
		}
		jwk, err := keyOfDID(did)
		if err != nil {
			return
		}
		if again, err := KeyDID(*jwk); err != nil || again != did {
			t.Fatalf("%q is also %q (%v)", did, again, err)
		}
	})
}
