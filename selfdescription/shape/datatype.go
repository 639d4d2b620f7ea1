package shape

import (
	"encoding/base64"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// datatype is the type of a literal, by its prefixed name in the Gaia-X context. It is also
// what the context makes of a string: none (a plain string) or iri.
type datatype string

const (
	none       datatype = ""
	iri        datatype = "@id"
	xsdString  datatype = "xsd:string"
	xsdBoolean datatype = "xsd:boolean"
	xsdInteger datatype = "xsd:integer"
	xsdCount   datatype = "xsd:nonNegativeInteger"
	xsdDecimal datatype = "xsd:decimal"
	xsdFloat   datatype = "xsd:float"
	xsdDouble  datatype = "xsd:double"
	xsdDate    datatype = "xsd:date"
	xsdTime    datatype = "xsd:dateTime"
	xsdAnyURI  datatype = "xsd:anyURI"
	sriString  datatype = "cred:sriString"
)

// prefixes of datatypes in the Gaia-X context.
var prefixes = map[string]string{
	"http://www.w3.org/2001/XMLSchema#":    "xsd:",
	"https://www.w3.org/2018/credentials#": "cred:",
	"https://w3id.org/gaia-x/development#": gaiaX,
	"https://schema.org/":                  "httpsschema:",
	"http://www.w3.org/2006/vcard/ns#":     "vcard:",
	"http://purl.org/dc/terms/":            "dcterms:",
	"http://www.w3.org/2004/02/skos/core#": "skos:",
	"http://www.w3.org/ns/odrl/2/":         "odrl:",
	"http://qudt.org/schema/qudt/":         "qudt:",
	"http://qudt.org/vocab/quantitykind/":  "qk:",
	"http://www.w3.org/ns/dcat#":           "dcat:",
	"https://w3id.org/linkml/":             "linkml:",
}

// compactDatatype returns the datatype of a name, prefixed or in full.
func compactDatatype(name string) datatype {
	for namespace, prefix := range prefixes {
		if rest, ok := strings.CutPrefix(name, namespace); ok {
			return datatype(prefix + rest)
		}
	}
	return datatype(name)
}

var (
	integerForm = regexp.MustCompile(`^[+-]?[0-9]+$`)
	decimalForm = regexp.MustCompile(`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)$`)
	floatForm   = regexp.MustCompile(`^([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|-?INF|NaN)$`)
	dateForm    = regexp.MustCompile(`^([0-9]{4}-[0-9]{2}-[0-9]{2})(Z|[+-][0-9]{2}:[0-9]{2})?$`)
	schemeForm  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:[^\s<>"{}|\\^` + "`" + `]+$`)
	sriForm     = regexp.MustCompile(`^sha(256|384|512)-([A-Za-z0-9+/]+={0,2})$`)
)

// valid reports whether text is a literal of the datatype (XML Schema 1.1, Part 2). Years have
// four digits. sriString is W3C Subresource Integrity with one hash.
func (t datatype) valid(text string) bool {
	switch t {
	case xsdString:
		return true
	case xsdBoolean:
		return slices.Contains([]string{"true", "false", "1", "0"}, text)
	case xsdInteger:
		return integerForm.MatchString(text)
	case xsdCount:
		return integerForm.MatchString(text) && !strings.HasPrefix(text, "-")
	case xsdDecimal:
		return decimalForm.MatchString(text)
	case xsdFloat, xsdDouble:
		return floatForm.MatchString(text)
	case xsdDate:
		match := dateForm.FindStringSubmatch(text)
		if match == nil {
			return false
		}
		_, err := time.Parse(time.DateOnly, match[1])
		return err == nil
	case xsdTime:
		_, err := time.Parse(time.RFC3339, text)
		return err == nil
	case xsdAnyURI:
		_, err := url.Parse(text)
		return err == nil && !strings.ContainsAny(text, " \t\r\n")
	case sriString:
		return isSRI(text)
	}
	return false
}

// isAbsolute reports whether text is an IRI with a scheme, or a blank node. Relative IRIs have
// no meaning in a signed document.
func isAbsolute(text string) bool { return schemeForm.MatchString(text) }

func isSRI(text string) bool {
	match := sriForm.FindStringSubmatch(text)
	if match == nil {
		return false
	}
	sum, err := base64.StdEncoding.DecodeString(match[2])
	bits, _ := strconv.Atoi(match[1])
	return err == nil && len(sum)*8 == bits
}

// oneOf accepts a list of values.
func oneOf(values ...string) func(string) bool {
	return func(text string) bool { return slices.Contains(values, text) }
}

// between accepts a range of numbers, ends included.
func between(low, high float64) func(string) bool {
	return func(text string) bool {
		number, err := strconv.ParseFloat(text, 64)
		return err == nil && low <= number && number <= high
	}
}

var (
	spdxForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+-]*$`)
	nutsForm = regexp.MustCompile(`^([A-Z]{2})[0-9A-Z]{2}$`)
)

func isMediaType(text string) bool {
	mediaType, parameters, err := mime.ParseMediaType(text)
	return err == nil && len(parameters) == 0 && strings.Contains(mediaType, "/") && strings.EqualFold(mediaType, text)
}

func isLicence(text string) bool { return spdxForm.MatchString(text) }

// isRegion reports whether text has the form of a region of NUTS level 2 (Regulation (EC)
// 1059/2003), which writes Greece as EL.
func isRegion(text string) bool {
	match := nutsForm.FindStringSubmatch(text)
	return match != nil && (match[1] == "EL" || InEU(match[1]))
}
