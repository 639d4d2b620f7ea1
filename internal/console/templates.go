package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

//go:embed templates
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// assets by name, and the digest of them all, which is in their URLs: browsers keep them until one changes.
var assets, assetsDigest = readAssets()

func readAssets() (map[string][]byte, string) {
	found, sum := map[string][]byte{}, sha256.New()
	entries, _ := fs.ReadDir(assetFiles, "assets") // it is embedded
	for _, e := range entries {
		content, _ := fs.ReadFile(assetFiles, path.Join("assets", e.Name()))
		found[e.Name()] = content
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", e.Name(), len(content), content)
	}
	return found, hex.EncodeToString(sum.Sum(nil)[:6])
}

// serveAsset answers with a file for any digest, because a page of another version may still be open.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	content, found := assets[r.PathValue("file")]
	if !found {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", mime.TypeByExtension(path.Ext(r.PathValue("file"))))
	if r.PathValue("digest") == assetsDigest {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(content) // the browser has gone
}

// parseTemplates returns the template of each page, with the layout and the parts that they share.
func parseTemplates(c clock.PassiveClock) (map[string]*template.Template, error) {
	functions := template.FuncMap{
		"asset":   func(name string) string { return Root + "assets/" + assetsDigest + "/" + name },
		"when":    func(t any) *moment { return momentOf(t, c.Now()) },
		"amounts": amounts, "amount": amount, "cores": cores, "binary": binary, "counted": counted, "grouped": func(n int) string { return grouped(int64(n)) }, "int": func(n int32) int { return int(n) },
		"perHour": perHour, "spaced": spaced, "join": strings.Join,
	}
	shared, err := template.New("layout").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("parse the console's layout: %w", err)
	}
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	pages := map[string]*template.Template{}
	for _, name := range names {
		if base := path.Base(name); base == "layout.html" || base == "parts.html" {
			continue
		}
		own, err := template.Must(shared.Clone()).ParseFS(templateFiles, name)
		if err != nil {
			return nil, fmt.Errorf("parse a page of the console: %w", err)
		}
		pages[strings.TrimSuffix(path.Base(name), ".html")] = own
	}
	return pages, nil
}

// momentOf returns a time of any of the types that resources have; nil if there is none.
func momentOf(t any, now time.Time) *moment {
	var at time.Time
	switch t := t.(type) {
	case string: // RFC 3339, or none
		at, _ = time.Parse(time.RFC3339, t)
	case time.Time:
		at = t
	case *time.Time:
		if t != nil {
			at = *t
		}
	case metav1.Time:
		at = t.Time
	case *metav1.Time:
		if t != nil {
			at = t.Time
		}
	case metav1.MicroTime:
		at = t.Time
	case *metav1.MicroTime:
		if t != nil {
			at = t.Time
		}
	}
	if at.IsZero() {
		return nil
	}
	return &moment{at, now}
}
