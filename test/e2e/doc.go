// Package e2e plays the whole story on kind clusters, with Sluice on its
// embedded hub and with Sluice installed by its chart: catalog, provision, bind,
// use, unbind, deprovision, and then the OSB conformance suite of test/osb.
//
// Its tests carry the build tag e2e and need root on a Debian machine, or a
// running Docker; test/kind installs and builds the rest. Nothing is faked.
package e2e
