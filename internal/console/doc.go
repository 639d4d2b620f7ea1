// Package console is the web console: pages for operators, consumers and providers, rendered by the server.
//
// Everything can be read without JavaScript; the script only refreshes what has changed, and passes a ticket on. Nothing
// is loaded from elsewhere, and no text of a provider or a consumer is ever markup: html/template escapes it, and the
// Content-Security-Policy allows no script and no style but the console's own.
//
// The console shows what resources of the hub say, from the manager's cache, and what the catalog sells. It writes
// nothing to the hub: consumers order through the OSB API, in the process, with their own session's token, so that there
// is one authorization. It calls no member cluster and knows no controller; of placement it uses the pure engine, to
// count what is free as placement counts it.
package console
