package rdfc_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/selfdescription/legacy/rdfc"
)

var (
	termForm   = `(?:<([^>]*)>|_:([^\s<>"]+)|("(?:[^"\\]|\\.)*")(?:@([A-Za-z0-9-]+)|\^\^<([^>]*)>)?)`
	quadForm   = regexp.MustCompile(`^\s*` + termForm + `\s*` + termForm + `\s*` + termForm + `\s*` + termForm + `?\s*\.\s*(?:#.*)?$`)
	escapeForm = regexp.MustCompile(`\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)`)
)

// parse reads N-Quads.
func parse(document string) ([]rdfc.Quad, error) {
	var dataset []rdfc.Quad
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		match := quadForm.FindStringSubmatch(line)
		if match == nil {
			return nil, fmt.Errorf("not a quad: %s", line)
		}
		dataset = append(dataset, rdfc.Quad{
			Subject: term(match[1:6]), Predicate: term(match[6:11]), Object: term(match[11:16]), Graph: term(match[16:21]),
		})
	}
	return dataset, nil
}

func term(groups []string) rdfc.Term {
	switch {
	case groups[0] != "":
		return rdfc.Term{Kind: rdfc.IRI, Value: unescape(groups[0])}
	case groups[1] != "":
		return rdfc.Term{Kind: rdfc.Blank, Value: groups[1]}
	case groups[2] != "":
		text := groups[2][1 : len(groups[2])-1]
		return rdfc.Term{Kind: rdfc.Literal, Value: unescape(text), Language: groups[3], Datatype: unescape(groups[4])}
	}
	return rdfc.Term{} // no graph
}

func unescape(text string) string {
	return escapeForm.ReplaceAllStringFunc(text, func(escape string) string {
		switch c := escape[1]; c {
		case 'u', 'U':
			code, err := strconv.ParseUint(escape[2:], 16, 32)
			if err != nil {
				return string(c)
			}
			return string(rune(code))
		default:
			if i := strings.IndexByte("tbnrf", c); i >= 0 {
				return "\t\b\n\r\f"[i : i+1]
			}
			return string(c)
		}
	})
}
