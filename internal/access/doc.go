// Package access says who calls the market and the console, by tokens that the broker signs.
//
// A token is a JWT (RFC 7519) signed with the keys of the broker's Identity, so that every replica verifies what any
// of them issued, and so does anybody with the published keys. It follows the best current practices of RFC 8725: one
// algorithm, an explicit type, issuer and audience. It names a Caller, and what it was issued for: the credentials of
// a platform, a Provider as its spec was, the Identity. It ends with that, whatever its own end:
//
//   - a platform's, when the credentials that it was issued for are removed from the platforms file;
//   - a provider's, when its Provider is removed, or its spec changes, spec.tokensRevoked included;
//   - an operator's, when spec.tokensRevoked of the Identity changes;
//   - one that was issued for an entry of the platforms file, when that is removed, whosever it is;
//   - all, when the key that signed them is retired. A rotation retires a key MaxLifetime later, so that it ends no
//     token early.
//
// A ticket is a short-lived JWT of a type of its own that is exchanged for a session once, whichever replica it is
// shown to. It is no token. An invitation is another such type: whoever has it adds one cluster for the provider that
// made it, and may do nothing else.
//
// This package must not know HTTP, or what callers may do.
package access
