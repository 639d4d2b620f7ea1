// Package secretfile reads files with secrets: small ones that nobody but their owner may read,
// or that are in a mounted Secret. It follows their changes.
package secretfile
