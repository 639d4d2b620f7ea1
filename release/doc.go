// Command release writes what a release of Sluice consists of into one folder; `make release` runs it.
//
//	sluice-VERSION-OS-ARCH.tar.gz   the binary and the licence, for Linux and macOS on amd64 and arm64
//	sluice-VERSION-OS-ARCH.cdx.json what is in that binary: its SBOM, in CycloneDX
//	image                           the image for both Linux platforms, an OCI image layout
//	sluice-VERSION.tgz              the Helm chart, which asks for that image
//	claims-VERSION.tgz              the Helm chart for consumers' clusters, which asks for it too
//	provenance.json                 of which commit and how they were built: an in-toto statement in SLSA's format
//	SHA256SUMS                      of all of these files; SHA256SUMS.sig is its signature, if a key is given
//
// Nothing in them depends on when, where or by whom they are built: two builds of one commit by one version of Go are
// the same files. An SBOM is read from the binary, not from go.mod, so it has what was linked.
//
// It needs Go and git, and no Docker. It fetches nothing but the modules in go.sum.
package main
