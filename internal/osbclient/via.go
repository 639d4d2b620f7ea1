package osbclient

import (
	"net/http"
	"strings"
)

const (
	// headerVia of a provision names the Sluices that the order has come through, so that one
	// that it comes back to recognises it (RFC 9110, section 7.6.3).
	headerVia = "Via"
	// viaProtocol tells Sluices from HTTP proxies, which write into the same header.
	viaProtocol = "OSB/" + version
)

// Via returns the ids of the hubs that a request has come through, the first one first. HTTP
// proxies are left out.
func Via(header http.Header) []string {
	var hubs []string
	for _, line := range header.Values(headerVia) {
		for entry := range strings.SplitSeq(line, ",") {
			// The protocol, the pseudonym of who received it, and perhaps a comment.
			if fields := strings.Fields(entry); len(fields) > 1 && fields[0] == viaProtocol {
				hubs = append(hubs, fields[1])
			}
		}
	}
	return hubs
}

// via returns the header for an order that has come through hubs.
func via(hubs []string) http.Header {
	header := http.Header{}
	for _, hub := range hubs {
		header.Add(headerVia, viaProtocol+" "+hub)
	}
	return header
}
