// Package strictjson decodes JSON that comes from outside. It accepts what RFC
// 8259 and RFC 7493 (I-JSON) call interoperable and nothing else, within limits,
// and reports precisely what was wrong and where, without repeating any value.
//
// Two parties that read one document must not see different things. Hence a
// member name may occur once per object in any escaped form, names match field
// tags exactly, strings are valid UTF-8 and nothing follows the top-level value.
//
// The syntax is checked over the whole document before anything is decoded, so
// that a rule also holds inside members that the Go type does not know or keeps
// as json.RawMessage. What is decoded follows encoding/json/v2 as implemented by
// github.com/go-json-experiment/json, with one change: a number decoded into an
// interface becomes a json.Number, so that no digit is lost.
//
// This package must not know HTTP or the types that it decodes into.
package strictjson
