package legacy

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the contexts
	"encoding/json"
	"fmt"
	"slices"

	"github.com/piprate/json-gold/ld"

	"github.com/sluice-dev/sluice/selfdescription"
)

// URLs of contexts that only credentials of this package use.
const (
	ContextCredentialsV1 = "https://www.w3.org/2018/credentials/v1"
	ContextJWS2020       = "https://w3id.org/security/suites/jws-2020/v1"
	// ContextGaiaX2210 is the context of documents of 2023, release 22.10 ("Tagus").
	ContextGaiaX2210 = "https://registry.lab.gaia-x.eu/development/api/trusted-shape-registry/v1/shapes/jsonld/trustframework#"
)

var (
	//go:embed contexts/credentials-v1.jsonld
	credentialsV1 []byte
	//go:embed contexts/credentials-v2.jsonld
	credentialsV2 []byte
	//go:embed contexts/jws-2020-v1.jsonld
	jws2020 []byte
	//go:embed contexts/gaia-x-25.11.jsonld
	gaiaX []byte
	//go:embed contexts/gaia-x-22.10.jsonld
	gaiaX2210 []byte
)

// known are the contexts that documents may use.
var known = loader{
	pinned(ContextCredentialsV1, credentialsV1),
	pinned(selfdescription.ContextCredentials, credentialsV2),
	pinned(ContextJWS2020, jws2020),
	pinned(selfdescription.ContextGaiaX, gaiaX),
	pinned(ContextGaiaX2210, gaiaX2210),
}

func pinned(url string, document []byte) selfdescription.Context {
	return selfdescription.Context{URL: url, Digest: sha256.Sum256(document), Document: document}
}

// loader returns contexts by their exact URL. It is a ld.DocumentLoader.
type loader []selfdescription.Context

// LoadDocument decodes a context on each call, because json-gold may keep parts of it.
func (l loader) LoadDocument(url string) (*ld.RemoteDocument, error) {
	i := slices.IndexFunc(l, func(c selfdescription.Context) bool { return c.URL == url })
	if i < 0 {
		return nil, fmt.Errorf("context %.120q is not on the list", url)
	}
	var document any
	if err := json.NewDecoder(bytes.NewReader(l[i].Document)).Decode(&document); err != nil {
		return nil, fmt.Errorf("context %s: %w", url, err)
	}
	return &ld.RemoteDocument{DocumentURL: url, Document: document}, nil
}

// options for json-gold: the current version of JSON-LD, no base IRI, no fetching, and an error
// instead of dropping a term.
func options() *ld.JsonLdOptions {
	options := ld.NewJsonLdOptions("")
	options.ProcessingMode = ld.JsonLd_1_1
	options.DocumentLoader = known
	options.SafeMode = true
	return options
}

// expand returns the expansion of a document (JSON-LD 1.1 API, 5.1).
func expand(document map[string]any) (node map[string]any, err error) {
	// json-gold panics on unexpected types in contexts and documents.
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("expand: %v", problem)
		}
	}()
	expanded, err := ld.NewJsonLdProcessor().Expand(document, options())
	if err != nil {
		return nil, fmt.Errorf("expand: %w", err)
	}
	if len(expanded) != 1 {
		return nil, fmt.Errorf("expand: want one node, got %d", len(expanded))
	}
	node, ok := expanded[0].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("expand: want a node, got %T", expanded[0])
	}
	return node, nil
}

// compact writes an expanded node in the terms of the current contexts.
func compact(node map[string]any) (compacted map[string]any, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("compact: %v", problem)
		}
	}()
	context := map[string]any{"@context": []any{selfdescription.ContextCredentials, selfdescription.ContextGaiaX}}
	compacted, err = ld.NewJsonLdProcessor().Compact(node, context, options())
	if err != nil {
		return nil, fmt.Errorf("compact: %w", err)
	}
	delete(compacted, "@context")
	return compacted, nil
}
