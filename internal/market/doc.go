// Package market is the HTTP API /market/v1: what is for sale, for whoever may see it, and the tokens with which
// platforms, providers and operators call it.
//
// Everything is read from the catalog and from what it is handed; it meets the controllers only in api and catalog,
// and verifies no credentials itself.
package market
