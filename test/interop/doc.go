// Package interop checks Sluice's credentials against an implementation that
// shares no code with it: jose for signatures, jsonld for the meaning of terms and
// a SHACL validator for the published shapes, all from npm. Both ways, for every
// algorithm and header form: they verify what Sluice issues, Sluice verifies what
// they issue.
//
// A reader of a cluster's capacity in Python (grpcio, and the schema of the paper) feeds Sluice by both protocols.
//
// Its tests carry the build tag interop; run.sh installs what they need. Contexts
// and shapes are those published by the W3C and by Gaia-X, pinned (testdata/NOTICE.md
// says where they are from); nothing is fetched.
package interop
