package docs_test

import (
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	block   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	inline  = regexp.MustCompile("`[^`\n]*`")
	spaced  = regexp.MustCompile(`[^\p{L}\p{N}\-_ ]`)
)

// anchorsOf returns the anchors of a page's headings, as GitHub makes them.
func anchorsOf(page string) (anchors []string) {
	for _, match := range heading.FindAllStringSubmatch(block.ReplaceAllString(page, ""), -1) {
		text := link.ReplaceAllString(strings.ToLower(match[1]), "")
		anchors = append(anchors, strings.ReplaceAll(spaced.ReplaceAllString(text, ""), " ", "-"))
	}
	return anchors
}

// TestLinks: every link of a page leads to a file of the repository, and to a heading of it if it names one.
func TestLinks(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, anchors, links := strings.Fields(string(output)), map[string][]string{}, 0
	for _, page := range files {
		if path.Ext(page) != ".md" {
			continue
		}
		for _, match := range link.FindAllStringSubmatch(inline.ReplaceAllString(block.ReplaceAllString(read(t, page), ""), ""), -1) {
			if strings.Contains(match[1], "://") || strings.HasPrefix(match[1], "mailto:") {
				continue
			}
			links++
			target, anchor, named := strings.Cut(match[1], "#")
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
			}
			if !slices.ContainsFunc(files, func(f string) bool { return f == file || strings.HasPrefix(f, file+"/") }) {
				t.Errorf("%s: there is no %s", page, match[1])
				continue
			}
			if named && path.Ext(file) == ".md" {
				if anchors[file] == nil {
					anchors[file] = anchorsOf(read(t, file))
				}
				if !slices.Contains(anchors[file], anchor) {
					t.Errorf("%s: no heading is at %s", page, match[1])
				}
			}
		}
	}
	if links < 100 {
		t.Errorf("%d links were found, of hundreds", links)
	}
}
