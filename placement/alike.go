package placement

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// reads lists the facts that an expression reads. It has the same value for all clusters and requests of
// which these are equal.
type reads struct {
	// cluster lists fields of the cluster, and "labels.KEY" for one label; "labels" means all of them.
	cluster []string
	claims  bool
	// asked lists fields of the request and of its consumer, for instance "consumer.space"; "request"
	// means all of the request.
	asked []string
	// key of the groups of a page's clusters by these facts.
	key string
}

// readsOf returns what an expression reads. A part that cannot be told by the expression's text, such as a key
// that is computed, counts as all of what it is a part of.
func readsOf(expr celast.NavigableExpr) reads {
	var r reads
	for _, ident := range celast.MatchDescendants(expr, celast.KindMatcher(celast.IdentKind)) {
		switch name := ident.AsIdent(); name {
		case "claims":
			r.claims = true
		case "request", "consumer":
			if _, field, ok := part(ident); ok {
				name += "." + field
			}
			r.asked = append(r.asked, name)
		case "cluster":
			r.cluster = append(r.cluster, readsOfCluster(ident)...)
		}
	}
	slices.Sort(r.cluster)
	slices.Sort(r.asked)
	r.cluster, r.asked = slices.Compact(r.cluster), slices.Compact(r.asked)
	r.key = fmt.Sprint(r.claims, strings.Join(r.cluster, "\x00"))
	return r
}

// ofCluster reports whether the value depends on the cluster alone, not on the request or its consumer.
func (r *reads) ofCluster() bool { return len(r.asked) == 0 }

// isMixed reports whether the value depends on both.
func (r *reads) isMixed() bool { return len(r.asked) > 0 && (len(r.cluster) > 0 || r.claims) }

// readsOfCluster returns what is read of the cluster where the expression names it.
func readsOfCluster(ident celast.NavigableExpr) []string {
	value, field, ok := part(ident)
	switch {
	case !ok:
		return []string{"name", "provider", "region", "labels"}
	case field == "tier":
		return []string{"labels." + v1alpha1.LabelTier}
	case field == "labels":
		if _, key, ok := part(value); ok {
			field += "." + key
		}
	}
	return []string{field}
}

// part returns which part of a map an expression reads, and the expression that does: m.name, has(m.name),
// m["name"], or "name" in m.
func part(m celast.NavigableExpr) (whole celast.NavigableExpr, name string, ok bool) {
	whole, ok = m.Parent()
	if !ok {
		return nil, "", false
	}
	switch whole.Kind() {
	case celast.SelectKind:
		return whole, whole.AsSelect().FieldName(), true
	case celast.CallKind:
		of, key := 0, 1
		switch whole.AsCall().FunctionName() {
		case operators.In:
			of, key = 1, 0
		case operators.Index:
		default:
			return nil, "", false
		}
		args := whole.AsCall().Args()
		if args[of].ID() == m.ID() && args[key].Kind() == celast.LiteralKind {
			text, isText := args[key].AsLiteral().(types.String)
			return whole, string(text), isText
		}
	}
	return nil, "", false
}

// of returns what the expression reads of a cluster, in a form that is equal only if all of it is.
func (r *reads) of(c *Cluster) string {
	var values []byte
	add := func(parts ...string) {
		for _, part := range parts {
			values = binary.AppendUvarint(values, uint64(len(part)))
			values = append(values, part...)
		}
	}
	for _, field := range r.cluster {
		key, label := strings.CutPrefix(field, "labels.")
		switch {
		case label:
			value, has := c.Labels[key]
			add(fmt.Sprint(has), value)
		case field == "labels":
			add(strconv.Itoa(len(c.Labels)))
			for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
				add(key, c.Labels[key])
			}
		case field == "name":
			add(c.Name)
		case field == "provider":
			add(c.Provider)
		case field == "region":
			add(c.Region)
		}
	}
	if r.claims {
		for i := range c.Claims {
			claim := &c.Claims[i]
			add(claim.Name, claim.Value, string(claim.Assurance), claim.Issuer)
		}
	}
	return string(values)
}

// values returns what the expression reads of a request.
func (r *reads) values(f *facts) (values []any) {
	for _, asked := range r.asked {
		of, field, isField := strings.Cut(asked, ".")
		from := f.request
		if of == "consumer" {
			from = f.consumer
		}
		if isField {
			values = append(values, from[field])
		} else {
			values = append(values, from)
		}
	}
	return values
}

// alike are rows of a page of which an expression reads the same.
type alike struct {
	values string
	rows   set
}

// alikeKey is the key of a page's groups of such rows among its groupings.
type alikeKey string

// alike returns the groups of a page's clusters of which an expression reads the same. They are computed
// once for a page's traits and kept with them.
func (p *page) alike(r *reads) []alike {
	if known, ok := p.groupings.Load(alikeKey(r.key)); ok {
		return known.([]alike)
	}
	var groups []alike
	number := map[string]int{}
	for row, c := range p.clusters {
		values := r.of(c)
		n, known := number[values]
		if !known {
			n = len(groups)
			number[values] = n
			groups = append(groups, alike{values: values})
		}
		groups[n].rows.add(row)
	}
	p.groupings.Store(alikeKey(r.key), groups)
	return groups
}
