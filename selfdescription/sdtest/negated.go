// Package sdtest has what tests of credentials share.
package sdtest

import (
	"crypto/elliptic"
	"encoding/base64"
	"math/big"
	"strings"
	"testing"
)

// Negated returns a credential by ES256 in its second form: with n-s in place of s. Its signature verifies as well.
func Negated(tb testing.TB, compact string) string {
	tb.Helper()
	cut := strings.LastIndex(compact, ".") + 1
	signature, err := base64.RawURLEncoding.DecodeString(compact[cut:])
	if err != nil {
		tb.Fatal(err)
	}
	s := new(big.Int).SetBytes(signature[32:])
	s.Sub(elliptic.P256().Params().N, s).FillBytes(signature[32:])
	return compact[:cut] + base64.RawURLEncoding.EncodeToString(signature)
}
